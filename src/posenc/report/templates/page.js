// Draws the charts of each figure; its legend hides and shows lines, its buttons change the scale.
for (const figure of document.querySelectorAll("figure")) {
  const panels = JSON.parse(figure.querySelector("script").textContent);
  const places = [...figure.querySelectorAll(".chart")];
  const entries = [...figure.querySelectorAll(".legend button")];
  const scales = [...figure.querySelectorAll(".scales button")];
  let views = [];

  const pressed = (button) => button.getAttribute("aria-pressed") === "true";
  const press = (button, on) => button.setAttribute("aria-pressed", on);

  function hide() {
    const hidden = entries.filter((entry) => !pressed(entry)).map((entry) => entry.textContent.trim());
    for (const view of views) view.signal("hidden", hidden).run();
  }

  async function draw() {
    const chosen = scales.findIndex(pressed);
    views.forEach((view) => view.finalize());
    const drawn = panels.map(({ charts, data }, i) => {
      const chart = charts[Math.max(0, chosen)];
      const options = { actions: false, renderer: "svg", config: THEME };
      return vegaEmbed(places[i], { ...chart, datasets: data }, options);
    });
    views = (await Promise.all(drawn)).map((result) => result.view);
    figure.views = views;
    if (entries.length) hide();
  }

  for (const entry of entries) {
    entry.addEventListener("click", () => { press(entry, !pressed(entry)); hide(); });
    entry.addEventListener("dblclick", () => {
      const alone = entries.every((other) => pressed(other) === (other === entry));
      for (const other of entries) press(other, alone || other === entry);
      hide();
    });
  }
  for (const scale of scales) {
    scale.addEventListener("click", () => {
      for (const other of scales) press(other, other === scale);
      draw();
    });
  }
  draw();
}
