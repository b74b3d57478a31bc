// Draws the charts of each figure; the legend hides and shows lines, the buttons change the scale.
// Figures keep their images if the browser cannot decompress the data or draw the charts.
async function decompress(element) {
  const bytes = Uint8Array.from(atob(element.textContent), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

async function activate(figure) {
  const panels = JSON.parse(await decompress(figure.querySelector("script")));
  const containers = [...figure.querySelectorAll(".chart")];
  const entries = [...figure.querySelectorAll(".legend button")];
  const scales = [...figure.querySelectorAll(".scales button")];
  let views = [];

  const pressed = (button) => button.getAttribute("aria-pressed") === "true";
  const setPressed = (button, on) => button.setAttribute("aria-pressed", on);

  function updateHidden() {
    const hidden = entries.filter((entry) => !pressed(entry)).map((entry) => entry.textContent.trim());
    for (const view of views) view.signal("hidden", hidden).run();
  }

  async function draw() {
    const scale = Math.max(0, scales.findIndex(pressed));
    views.forEach((view) => view.finalize());
    const embedded = panels.map(({ charts, data }, i) => {
      const options = { actions: false, renderer: "svg", config: THEME };
      return vegaEmbed(containers[i], { ...charts[scale], datasets: data }, options);
    });
    views = (await Promise.all(embedded)).map((result) => result.view);
    figure.views = views;
    if (entries.length) updateHidden();
  }

  function toggle(entry) {
    setPressed(entry, !pressed(entry));
    updateHidden();
  }

  function toggleOthers(entry) {
    const onlyThis = entries.every((other) => pressed(other) === (other === entry));
    for (const other of entries) setPressed(other, onlyThis || other === entry);
    updateHidden();
  }

  for (const entry of entries) {
    entry.addEventListener("click", (event) => event.shiftKey ? toggleOthers(entry) : toggle(entry));
    entry.addEventListener("dblclick", () => toggleOthers(entry));
  }
  for (const scale of scales) {
    scale.addEventListener("click", () => {
      for (const other of scales) setPressed(other, other === scale);
      draw();
    });
  }
  figure.classList.add("drawn");
  await draw();
}

const vega = document.createElement("script");
vega.textContent = await decompress(document.getElementById("vega"));
document.head.append(vega);
for (const figure of document.querySelectorAll("figure")) {
  activate(figure).catch((error) => { figure.classList.remove("drawn"); console.error(error); });
}
