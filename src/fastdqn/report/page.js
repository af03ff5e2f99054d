// Sorting, filtering, tooltips, views, the theme and the copy buttons. The page can be read without any of it.
(() => {
  "use strict";
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Theme: the system's until the button is pressed, then the reader's
  const root = document.documentElement;
  document.querySelector(".theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("fastdqn-theme", root.dataset.theme); } catch (error) { /* a page without storage */ }
  });

  // Copy buttons
  const copyText = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch (error) {
      const area = Object.assign(document.createElement("textarea"), { value: text });
      area.style.position = "fixed";
      area.style.opacity = "0";
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  };
  for (const button of all("button.copy")) {
    button.addEventListener("click", async () => {
      button.textContent = (await copyText(button.dataset.copy)) ? "copied ✓" : "press Ctrl-C";
      setTimeout(() => { button.textContent = "copy"; }, 1800);
    });
  }

  // Tables: a head sorts; numbers begin with the largest; what is missing stays last
  const valueOf = (row, column) => {
    const text = row.cells[column].dataset.sort;
    if (text === undefined) return null;
    return text.trim() === "" || Number.isNaN(Number(text)) ? text : Number(text);
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  for (const table of all("table")) {
    const heads = all("thead th", table);
    heads.forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        const first = head.classList.contains("numeric") ? "descending" : "ascending";
        const order = now === "none" ? first : now === "ascending" ? "descending" : "ascending";
        heads.forEach((other) => other.setAttribute("aria-sort", other === head ? order : "none"));
        const body = table.tBodies[0];
        const keyed = [...body.rows].map((row) => [valueOf(row, column), row]);
        keyed.sort(([a], [b]) => {
          if (a === null || b === null) return (a === null) - (b === null);
          return order === "ascending" ? compare(a, b) : compare(b, a);
        });
        body.append(...keyed.map(([, row]) => row));
      });
    });
  }

  // Filters of a table
  for (const bar of all(".filters")) {
    const rows = all("tbody tr", bar.parentElement);
    const fields = all("[data-filter]", bar);
    const output = bar.querySelector("output");
    const apply = () => {
      let left = 0;
      for (const row of rows) {
        const fits = fields.every((field) => {
          const wish = field.value.trim();
          const has = row.dataset[field.dataset.filter];
          return field.dataset.filter === "words" ? has.includes(wish.toLowerCase()) : wish === "" || has === wish;
        });
        row.hidden = !fits;
        left += fits;
      }
      output.textContent = left === rows.length ? `${left} ${output.dataset.thing}` : `${left} of ${rows.length} ${output.dataset.thing}`;
    };
    for (const field of fields) for (const kind of ["input", "change"]) field.addEventListener(kind, apply);
  }

  // Views: tabs with arrow keys
  for (const views of all(".views")) {
    const tabs = all('[role="tab"]', views);
    const choose = (tab) => tabs.forEach((other) => {
      other.setAttribute("aria-selected", String(other === tab));
      other.tabIndex = other === tab ? 0 : -1;
      document.getElementById(other.getAttribute("aria-controls")).hidden = other !== tab;
    });
    tabs.forEach((tab, index) => {
      tab.addEventListener("click", () => choose(tab));
      tab.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        const next = tabs[(index + step + tabs.length) % tabs.length];
        choose(next);
        next.focus();
      });
    });
    choose(tabs[0]);
  }

  // Curves that are shown
  for (const button of all(".toggle")) {
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(on));
      all(`.series.${button.dataset.series}`, button.closest("figure")).forEach((one) => one.classList.toggle("off", !on));
    });
  }

  // Tips: on hover, on touch, and with the arrow keys once a chart has the focus
  const tip = document.getElementById("tip");
  let active = null;
  const hide = () => {
    tip.classList.remove("on");
    if (active) active.classList.remove("active");
    active = null;
  };
  const show = (mark, x, y) => {
    if (active !== mark) {
      if (active) active.classList.remove("active");
      const [first, ...rest] = mark.dataset.tip.split("\n");
      tip.replaceChildren(Object.assign(document.createElement("b"), { textContent: first }), ...rest.map((line) => Object.assign(document.createElement("span"), { textContent: line })));
      active = mark;
      mark.classList.add("active");
    }
    tip.classList.add("on");
    const width = tip.offsetWidth, height = tip.offsetHeight, edge = 8;
    tip.style.left = `${Math.max(edge, Math.min(x + 14, innerWidth - width - edge))}px`;
    tip.style.top = `${y + 18 + height > innerHeight - edge ? Math.max(edge, y - height - 12) : y + 18}px`;
  };
  const visible = (mark) => !mark.closest(".off");
  const nearestPoint = (svg, x, y) => {
    let best = null, least = 40 * 40;
    for (const mark of svg.querySelectorAll(".series:not(.off) .mark")) {
      const box = mark.getBoundingClientRect();
      const far = (box.x + box.width / 2 - x) ** 2 + (box.y + box.height / 2 - y) ** 2;
      if (far < least) [best, least] = [mark, far];
    }
    return best;
  };
  const point = (event) => {
    if (!(event.target instanceof Element)) return;
    const svg = event.target.closest('svg[role="img"]');
    const mark = event.target.closest("[data-tip]") || (svg && nearestPoint(svg, event.clientX, event.clientY));
    if (mark) show(mark, event.clientX, event.clientY);
    else hide();
  };
  document.addEventListener("pointermove", point);
  document.addEventListener("pointerdown", point);
  document.addEventListener("scroll", hide, { passive: true, capture: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  for (const svg of all('svg[role="img"]')) {
    const title = svg.querySelector("title"); // as a label: browsers show a title over every tip
    svg.setAttribute("aria-label", title.textContent);
    svg.setAttribute("aria-describedby", svg.querySelector("desc").id);
    svg.removeAttribute("aria-labelledby");
    title.remove();
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const marks = all("[data-tip]", svg).filter(visible);
      if (!step || !marks.length) return;
      event.preventDefault();
      const from = marks.indexOf(active);
      const mark = marks[from < 0 ? (step > 0 ? 0 : marks.length - 1) : (from + step + marks.length) % marks.length];
      const box = (mark.querySelector(".bar, .segment, .dot, .point-dot, line") || mark).getBoundingClientRect();
      show(mark, box.x + Math.min(box.width, 260), box.y + box.height / 2);
    });
    svg.addEventListener("blur", hide);
  }

  // The record in view is marked in the bar
  const links = new Map(all(".topbar nav a").map((link) => [link.hash.slice(1), link]));
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      links.forEach((link) => link.removeAttribute("aria-current"));
      const link = links.get(entry.target.id);
      link.setAttribute("aria-current", "true");
      const nav = link.parentElement;
      nav.scrollTo({ left: link.offsetLeft - nav.offsetLeft - 24 });
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  all(".record").forEach((record) => watcher.observe(record));
})();
