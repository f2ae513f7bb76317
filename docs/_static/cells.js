// A switch that opens all folded code of a page, and what was checked.
document.addEventListener("DOMContentLoaded", () => {
  const folded = document.querySelectorAll(".bd-article div.cell:is(.check, .fold) details.hide");
  const title = document.querySelector(".bd-article h1");
  const front = document.querySelector(".bd-article .buttons"); // shows code far below its first screen
  if (!folded.length || !title || front) return;
  const box = element("input", { type: "checkbox" }); // of player.js
  box.onchange = () => folded.forEach((details) => { details.open = box.checked; });
  title.after(element("label", { className: "all-code" }, box, "Show all code"));
});

// Paper is white: the page is printed in its light colours.
{
  let theme;
  const root = document.documentElement.dataset;
  addEventListener("beforeprint", () => { [theme, root.theme] = [root.theme, "light"]; });
  addEventListener("afterprint", () => { root.theme = theme; });
}
