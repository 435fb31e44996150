/* Search in pages that are opened from a folder: browsers refuse workers there, so the same script runs in a hidden
   frame, behind the same interface. Over http nothing is changed. Nothing is loaded from anywhere else. */
"use strict";
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      this.ready = new Promise(resolve => { frame.onload = () => resolve(frame.contentWindow); });
      const answer = data => this.dispatchEvent(new MessageEvent("message", {data}));
      const script = document.createElement("script");
      script.src = url;
      frame.srcdoc = `<!doctype html><html lang="en"><title>search</title>${script.outerHTML}</html>`;
      document.addEventListener("DOMContentLoaded", () => document.body.append(frame));
      if (document.readyState !== "loading") document.body.append(frame);
      this.ready.then(inner => { inner.postMessage = answer; });
    }
    postMessage(data) {
      this.ready.then(inner => inner.dispatchEvent(new inner.MessageEvent("message", {data})));
    }
    terminate() {}
  };
  window.Worker = window.IFrameWorker;
}
