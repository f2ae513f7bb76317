// Counts, at the foot of a page, how many predictions were right at the first choice.
// The choices stay in this browser.
document.addEventListener("DOMContentLoaded", () => {
  const boxes = [...document.querySelectorAll(".bd-article .predict")];
  if (!boxes.length) return;
  const key = `predict ${location.pathname}`;
  let chosen = {};
  try { chosen = JSON.parse(localStorage.getItem(key)) ?? {}; } catch { /* nothing is stored */ }
  const foot = document.createElement("p");
  const words = document.createElement("span");
  const again = document.createElement("button");
  foot.className = "predicted";
  words.setAttribute("role", "status");
  again.type = "button";
  again.textContent = "Choose again";
  foot.append(words, " ", again);
  boxes[0].closest("section:not(section section)").append(foot);

  const show = () => {
    const answers = boxes.flatMap((box) => {
      const own = [...box.querySelectorAll("details")];
      own.forEach((answer, n) => answer.classList.toggle("chosen", chosen[answer.name] === n));
      return own.filter((answer) => answer.classList.contains("chosen"));
    });
    const right = answers.filter((answer) => answer.classList.contains("right")).length;
    words.textContent = `Predictions on this page: ${right} of ${boxes.length} right at the first choice` +
      (answers.length < boxes.length ? `, ${boxes.length - answers.length} not made yet.` : ".");
    again.hidden = !answers.length;
  };
  const store = () => {
    try { localStorage.setItem(key, JSON.stringify(chosen)); } catch { /* it counts until the page is left */ }
    show();
  };
  for (const box of boxes) {
    [...box.querySelectorAll("details")].forEach((answer, n) => {
      answer.querySelector("summary").addEventListener("click", () => {
        chosen[answer.name] ??= n;
        store();
      });
    });
  }
  again.addEventListener("click", () => {
    chosen = {};
    for (const answer of document.querySelectorAll(".predict details")) answer.open = false;
    store();
  });
  show();
});
