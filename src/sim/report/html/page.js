(() => {
  "use strict";
  const tip = document.getElementById("tip");

  const show = (event, rows) => {
    tip.replaceChildren(...rows.map(([text, colour]) => {
      const row = document.createElement("p");
      row.textContent = text;
      if (colour) row.className = colour;
      return row;
    }));
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const left = event.clientX + 16 + width > innerWidth ? event.clientX - 16 - width : event.clientX + 16;
    const top = Math.min(event.clientY + 16, innerHeight - height - 8);
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, top)}px`;
  };
  const hide = () => { tip.hidden = true; };

  // Without this script a title is the browser's own tooltip.
  for (const title of document.querySelectorAll("svg title")) {
    const owner = title.parentNode;
    const text = title.textContent;
    title.remove();
    owner.addEventListener("pointermove", (event) => show(event, [[text]]));
    owner.addEventListener("pointerleave", hide);
  }

  // The index of the point that is nearest to x, or the last one up to x; the points are in order of x.
  const find = (points, x, isStair) => {
    let low = 0;
    let high = points.numberOfItems - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (points.getItem(middle).x <= x) low = middle; else high = middle;
    }
    if (isStair) return x < points.getItem(high).x ? low : high;
    return x - points.getItem(low).x < points.getItem(high).x - x ? low : high;
  };

  for (const plot of document.querySelectorAll("svg.lines")) {
    const data = JSON.parse(plot.parentNode.querySelector("script").textContent);
    const cursor = plot.querySelector(".cursor");
    const lines = [...plot.querySelectorAll("polyline")].sort((a, b) => a.dataset.line - b.dataset.line);
    plot.addEventListener("pointermove", (event) => {
      const x = new DOMPoint(event.clientX, event.clientY).matrixTransform(plot.getScreenCTM().inverse()).x;
      const rows = [];
      let at = null;
      for (const [index, line] of lines.entries()) {
        if (line.points.numberOfItems === 0) continue;
        const { name, x: xs, y: ys } = data.lines[index];
        const point = find(line.points, x, data.own_x);
        if (at === null) {
          at = line.points.getItem(point).x;
          if (!data.own_x) rows.push([xs[point]]);
        }
        rows.push([data.own_x ? `${name}: ${ys[point]} within ${xs[point]}` : `${name}: ${ys[point]}`, `c${index}`]);
      }
      if (at === null) return;
      cursor.setAttribute("transform", `translate(${at} 0)`);
      cursor.setAttribute("visibility", "visible");
      show(event, rows);
    });
    plot.addEventListener("pointerleave", () => {
      cursor.setAttribute("visibility", "hidden");
      hide();
    });
  }
})();
