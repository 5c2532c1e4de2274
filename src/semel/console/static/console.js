// Copying, where there is a clipboard. Everything else works without this file.
"use strict";
function show(root) {
  if (!navigator.clipboard) return;
  for (const button of root.querySelectorAll("button[data-copy]")) button.hidden = false;
}
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.dataset.copy);
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
});
document.addEventListener("htmx:load", (event) => show(event.detail.elt));
// A second click is a replay on the server; here it is only not sent. Who stopped the first may press again.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.sent) return event.preventDefault();
  form.dataset.sent = "yes";
  setTimeout(() => { delete form.dataset.sent; }, 5000);
});
window.addEventListener("pageshow", () => {
  for (const form of document.forms) delete form.dataset.sent;
});
// What refreshes itself keeps the keyboard's place, the reader's selection and how far regions were scrolled;
// what is new is said, once.
let place = "", scrolled = new Map();
function known(element) {
  return element.id || element.getAttribute("href") || element.getAttribute("aria-label") || "";
}
document.addEventListener("htmx:beforeSwap", (event) => {
  const target = event.detail.target, selection = getSelection();
  if (!selection.isCollapsed && target.contains(selection.anchorNode)) event.detail.shouldSwap = false;
  place = target.contains(document.activeElement) ? known(document.activeElement) : "";
  scrolled = new Map([...target.querySelectorAll("[tabindex]")].map((each) => [known(each), [each.scrollLeft, each.scrollTop]]));
});
document.addEventListener("htmx:afterSwap", (event) => {
  const live = document.getElementById("live");
  if (!live) return;
  for (const each of live.querySelectorAll("[tabindex]")) each.scrollTo(...(scrolled.get(known(each)) ?? [0, 0]));
  if (place && !live.contains(document.activeElement)) {
    const same = [...live.querySelectorAll("a, button, [tabindex]")].find((each) => known(each) === place);
    if (same) same.focus({ preventScroll: true });
  }
  if (live.dataset.news !== said) document.getElementById("news").textContent = said = live.dataset.news;
});
let said = document.getElementById("live")?.dataset.news;
// A refresh that failed is said, or "well" would stand there while nothing is.
document.addEventListener("htmx:afterRequest", (event) => {
  const notice = document.getElementById("stale"), failed = !event.detail.successful;
  if (notice.hidden === !failed) return;
  notice.hidden = !failed;
  notice.textContent = failed ? "What you see is old: this page could not be refreshed. It is tried again every few seconds." : "";
});
// The session has ended: say so, instead of showing what was.
document.addEventListener("htmx:responseError", (event) => {
  if (event.detail.xhr.status === 401) location.reload();
});
show(document);
