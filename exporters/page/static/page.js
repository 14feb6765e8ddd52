// Keeps the page as the server would draw it now: on a change the same address is fetched and sections that differ are swapped.
// What is not known to be current is never shown as live: the page then says since when, and why.
"use strict";
(() => {
  const PAUSE = 1000;      // between two fetches
  const SILENCE = 40000;   // a stream beats every 15 s; one that is silent for so long is dead, whatever the browser thinks
  const PATIENCE = 15000;  // for an answer
  const UNSEEN = 60000;    // how often a page in a tab that nobody sees is fetched: it keeps no connection
  const SLOWEST = 30000;   // between two attempts to connect
  const run = document.body.dataset.run;
  const address = "/events" + (run ? "?run=" + encodeURIComponent(run) : "");
  const main = document.getElementById("main");
  const status = document.getElementById("live");
  const drawn = new Map([...main.children].map((part) => [part.id, part.outerHTML]));  // as the server wrote it
  let stream = null, open = false, heard = 0, delay = PAUSE, timer = 0, lost = false, waiting = false, again = false;
  let good = Date.now();   // when what is seen was last known to be what the service would draw

  function seen() {
    const time = new Date(good).toISOString(), today = new Date().toISOString().startsWith(time.slice(0, 10));
    return (today ? "" : time.slice(0, 10) + " ") + time.slice(11, 19) + " UTC";
  }

  function say(words, state) {
    if (status.dataset.words === words) return;
    status.dataset.words = words;
    status.textContent = words;
    status.classList.toggle("on", state === "on");
    document.body.classList.toggle("lost", state === "lost");
    if (state === "lost") {
      const button = document.createElement("button");  // no link: one to an address with a `#` would load nothing
      button.type = "button";
      button.textContent = "Reload";
      button.addEventListener("click", () => location.reload());
      status.append(" ", button);
    }
  }

  function current(asked) {
    lost = false;
    good = asked;
    if (open) say(run ? "live" : "live: all runs", "on"); else say("as of " + seen() + ", asked now and then", "");
  }

  function lose(why) {
    lost = true;
    say("Not live: " + why + ". What you see is of " + seen() + ".", "lost");
  }

  // The stream works and tells of no change; a page that had lost the service for a moment must not wait for one.
  function beat() {
    if (lost) refresh(); else if (!waiting) good = heard;
  }

  // Sections.

  const controls = (part) => [...part.querySelectorAll("a, button, input, select, summary, [tabindex]")];

  function swap(part, fresh) {
    const opened = [...part.querySelectorAll("details")].map((one) => one.open);
    const focus = part.contains(document.activeElement) ? document.activeElement : null;
    const at = focus ? controls(part).indexOf(focus) : -1, link = focus?.getAttribute("href");
    part.replaceWith(fresh);
    fresh.querySelectorAll("details").forEach((one, place) => { one.open = opened[place] ?? one.open; });
    const same = link && controls(fresh).find((one) => one.getAttribute("href") === link);
    if (at >= 0) (same || controls(fresh)[at])?.focus({ preventScroll: true });
  }

  function draw(page) {
    const old = new Map([...main.children].map((part) => [part.id, part]));
    let last = null;
    for (const fresh of [...page.getElementById("main").children]) {
      const part = old.get(fresh.id), html = fresh.outerHTML;
      old.delete(fresh.id);
      const kept = part && (fresh.id === "filter" || drawn.get(fresh.id) === html);
      if (!kept) {
        drawn.set(fresh.id, html);
        if (part) swap(part, fresh); else if (last) last.after(fresh); else main.prepend(fresh);
      }
      last = kept ? part : fresh;
    }
    old.forEach((part, id) => { part.remove(); drawn.delete(id); });
    document.title = page.title;
    age();
  }

  async function refresh() {
    if (waiting) { again = true; return; }
    waiting = true;
    const asked = Date.now();  // an answer may lie for hours before a machine that slept
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(PATIENCE) });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (answer.status === 401) lose("the token has changed or is no longer known; open the page with the new one");
      else if ((answer.ok || answer.status === 404) && page.getElementById("main")) { draw(page); current(asked); }
      else lose("the service answers " + answer.status);
    } catch { lose("the service does not answer"); }
    setTimeout(() => { waiting = false; if (again) { again = false; refresh(); } }, PAUSE);
  }

  // The stream.

  function disconnect() {
    clearTimeout(timer);
    stream?.close();
    stream = null;
    open = false;
  }

  function connect() {
    disconnect();
    heard = Date.now();
    const mine = stream = new EventSource(address);
    const hear = (then) => () => {  // after a sleep come words from before it: they do not revive what is dead
      if (mine !== stream || Date.now() - heard >= SILENCE) return;
      heard = Date.now();
      then();
    };
    mine.addEventListener("open", hear(() => { open = true; delay = PAUSE; refresh(); }));
    mine.addEventListener("beat", hear(beat));
    mine.addEventListener("changed", hear(refresh));
    mine.addEventListener("error", () => {
      if (mine !== stream) return;
      open = false;
      if (!lost) lose("the connection is lost, trying again");
      if (mine.readyState === EventSource.CLOSED) {  // refused, not only cut: the browser does not try again
        timer = setTimeout(connect, delay);
        delay = Math.min(delay * 2, SLOWEST);
      }
      refresh();  // says why, or that only the stream is gone
    });
  }

  function watch() {
    if (document.hidden) { disconnect(); return; }
    say("not live yet: what you see is of " + seen(), "");
    connect();
  }

  setInterval(() => {
    if (document.hidden || Date.now() - heard < SILENCE) return;
    lose("nothing was heard from the service, trying again");
    connect();
  }, 5000);
  setInterval(() => { if (document.hidden) refresh(); }, UNSEEN);
  document.addEventListener("visibilitychange", watch);
  window.addEventListener("pageshow", (event) => { if (event.persisted) watch(); });
  watch();

  // How long ago.

  function age() {
    for (const one of main.querySelectorAll("time[data-unix]")) {
      const seconds = Math.max(0, Date.now() / 1000 - Number(one.dataset.unix));
      const [count, unit] = seconds < 90 ? [seconds, "s"] : seconds < 5400 ? [seconds / 60, "min"]
        : seconds < 172800 ? [seconds / 3600, "h"] : [seconds / 86400, "days"];
      one.dataset.age = Math.round(count) + " " + unit + " ago";
    }
  }
  setInterval(age, 5000);
  age();

  // Keys and the filter.

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
