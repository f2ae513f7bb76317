// A switch that opens all folded code of a page, and what was checked.
document.addEventListener("DOMContentLoaded", () => {
  const folded = document.querySelectorAll(".bd-article div.cell:is(.check, .fold) details.hide");
  const title = document.querySelector(".bd-article h1");
  const front = document.querySelector(".bd-article .buttons"); // shows code far below its first screen
  if (!folded.length || !title || front) return;
  const label = document.createElement("label");
  const box = document.createElement("input");
  box.type = "checkbox";
  label.className = "all-code";
  label.append(box, "Show all code");
  title.after(label);
  box.addEventListener("change", () => {
    for (const details of folded) details.open = box.checked;
  });
});

// Paper is white: the page is printed in its light colours.
{
  let theme;
  const root = document.documentElement.dataset;
  addEventListener("beforeprint", () => { [theme, root.theme] = [root.theme, "light"]; });
  addEventListener("afterprint", () => { root.theme = theme; });
}
