/* What the theme's script adds to a page gets names, and what scrolls sideways can be reached by keyboard. */
"use strict";
const named = () => {
  document.querySelectorAll(".md-code__nav:not([aria-label])").forEach((bar, k) => bar.setAttribute("aria-label", `code ${k + 1}`));
  document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])").forEach((box, k) => {
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", `table ${k + 1}`);
  });
  document.querySelectorAll("pre > code:not([tabindex])").forEach(code => { code.tabIndex = 0; });
};
new MutationObserver(named).observe(document.documentElement, {childList: true, subtree: true});
document.addEventListener("DOMContentLoaded", named);
