// A switch that opens all folded code of a page, and what was checked.
document.addEventListener("DOMContentLoaded", () => {
  const folded = document.querySelectorAll(".bd-article div.cell:is(.check, .fold) details.hide");
  const title = document.querySelector(".bd-article h1");
  if (!folded.length || !title) return;
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
