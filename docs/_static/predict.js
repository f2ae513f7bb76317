// Counts, at the foot of a page, how many predictions were right at the first choice.
// The choices stay in this browser.
document.addEventListener("DOMContentLoaded", () => {
  const boxes = [...document.querySelectorAll(".bd-article .predict")];
  if (!boxes.length) return;
  const answers = boxes.flatMap((box) => [...box.querySelectorAll("details")].map((answer, n) => [answer, n]));
  const key = `predict ${location.pathname}`;
  let chosen = {}; // the name of a question -> the number of its answer
  try { chosen = JSON.parse(localStorage.getItem(key)) ?? {}; } catch { /* nothing is stored */ }
  const words = element("span", { role: "status" }); // of player.js
  const again = element("button", { type: "button" }, "Choose again");
  const foot = element("p", { className: "predicted" }, words, " ", again);
  boxes[0].closest("section:not(section section)").append(foot);

  const show = () => {
    for (const [answer, n] of answers) answer.classList.toggle("chosen", chosen[answer.name] === n);
    const right = document.querySelectorAll(".predict .right.chosen").length;
    const rest = boxes.length - document.querySelectorAll(".predict .chosen").length;
    words.textContent = `Predictions on this page: ${right} of ${boxes.length} right at the first choice` +
      (rest ? `, ${rest} not made yet.` : ".");
    again.hidden = rest === boxes.length;
    try { localStorage.setItem(key, JSON.stringify(chosen)); } catch { /* it counts until the page is left */ }
  };
  for (const [answer, n] of answers) {
    answer.querySelector("summary").addEventListener("click", () => {
      chosen[answer.name] ??= n;
      show();
    });
  }
  again.addEventListener("click", () => {
    chosen = {};
    for (const [answer] of answers) answer.open = false;
    show();
  });
  show();
});
