/* What the theme's script adds to a page gets names, each once, and what scrolls sideways can be reached by keyboard. */
"use strict";
const named = () => {
  document.querySelectorAll(".md-code__nav:not([aria-label])").forEach((bar, k) => bar.setAttribute("aria-label", `code ${k + 1}`));
  document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])").forEach((box, k) => {
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", `table ${k + 1}`);
  });
  const seen = new Set();
  document.querySelectorAll("nav[aria-label]").forEach(list => {
    const label = list.getAttribute("aria-label");
    let name = label;
    for (let k = 2; seen.has(name.toLowerCase()); k++) name = `${label} (${k})`;
    seen.add(name.toLowerCase());
    if (name !== label) list.setAttribute("aria-label", name);
  });
  document.querySelectorAll("pre > code:not([tabindex])").forEach(code => { code.tabIndex = 0; });
};
new MutationObserver(named).observe(document.documentElement, {childList: true, subtree: true});
document.addEventListener("DOMContentLoaded", named);
