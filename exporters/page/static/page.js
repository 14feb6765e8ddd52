// Keeps the page as the server would draw it now: on a change the same address is fetched and sections that differ are swapped.
"use strict";
(() => {
  const PAUSE = 1000;
  const run = document.body.dataset.run;
  const status = document.getElementById("live");
  let waiting = false, again = false;

  const say = (text, on) => { status.textContent = text; status.classList.toggle("on", on); };
  const controls = (part) => [...part.querySelectorAll("a, button, input, select, summary, [tabindex]")];

  function swap(part, fresh) {
    const open = [...part.querySelectorAll("details")].map((one) => one.open);
    const at = part.contains(document.activeElement) ? controls(part).indexOf(document.activeElement) : -1;
    const across = [...part.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
    part.replaceWith(fresh);
    fresh.querySelectorAll("details").forEach((one, place) => { one.open = open[place] ?? one.open; });
    fresh.querySelectorAll(".scroll").forEach((one, place) => { one.scrollLeft = across[place] ?? 0; });
    if (at >= 0) controls(fresh)[at]?.focus({ preventScroll: true });
  }

  async function refresh() {
    if (waiting) { again = true; return; }
    waiting = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.ok) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const main = document.getElementById("main");
        const old = new Map([...main.children].map((part) => [part.id, part]));
        let last = null;
        for (const fresh of [...page.getElementById("main").children]) {
          const part = old.get(fresh.id);
          old.delete(fresh.id);
          if (fresh.id === "filter" && part) { last = part; continue; }
          if (part && part.outerHTML === fresh.outerHTML) { last = part; continue; }
          if (part) swap(part, fresh); else if (last) last.after(fresh); else main.prepend(fresh);
          last = fresh;
        }
        old.forEach((part) => part.remove());
        document.title = page.title;
        say(run ? "live" : "live: all runs", true);
      }
    } catch { say("not live: the service does not answer", false); }
    setTimeout(() => { waiting = false; if (again) { again = false; refresh(); } }, PAUSE);
  }

  const stream = new EventSource("/events" + (run ? "?run=" + encodeURIComponent(run) : ""));
  stream.addEventListener("open", () => { say(run ? "live" : "live: all runs", true); refresh(); });
  stream.addEventListener("changed", refresh);
  stream.addEventListener("error", () => say("not live: trying again", false));

  const filter = document.getElementById("q");
  if (filter) {
    const form = filter.form;
    const apply = () => {
      const given = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
      history.replaceState(null, "", given.size ? "/?" + given : "/");
      refresh();
    };
    form.addEventListener("submit", (event) => { event.preventDefault(); apply(); });
    form.addEventListener("input", apply);
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, select, textarea")) { if (event.key === "Escape") event.target.blur(); return; }
    const links = [...document.querySelectorAll(".run-link")];
    const at = links.indexOf(document.activeElement);
    if (event.key === "/" && filter) { event.preventDefault(); filter.focus(); }
    else if (event.key === "j") links[Math.min(at + 1, links.length - 1)]?.focus();
    else if (event.key === "k") links[Math.max(at - 1, 0)]?.focus();
    else if (event.key === "u") location.href = "/";
  });
})();
