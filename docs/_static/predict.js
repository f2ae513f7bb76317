// Counts, at the foot of a page, how many predictions were right at the first choice.
// The choices stay in this browser.
document.addEventListener("DOMContentLoaded", () => {
  const boxes = [...document.querySelectorAll(".bd-article .predict")];
  if (!boxes.length) return;
  const answers = boxes.flatMap((box) => [...box.querySelectorAll("details")].map((answer, n) => [answer, n]));
  const key = `predict ${location.pathname}`;
  let chosen = {}; // the name of a question -> the number of its answer
  try { chosen = JSON.parse(localStorage.getItem(key)) ?? {}; } catch { /* nothing is stored */ }
  boxes[0].closest("section:not(section section)").insertAdjacentHTML("beforeend",
    '<p class="predicted"><span role="status"></span> <button type="button">Choose again</button></p>');
  const [words, again] = document.querySelectorAll(".predicted > *");

  const show = () => {
    for (const [answer, n] of answers) answer.classList.toggle("chosen", chosen[answer.name] === n);
    const right = document.querySelectorAll(".predict .right.chosen").length;
    const rest = boxes.length - document.querySelectorAll(".predict .chosen").length;
    words.textContent = `Predictions on this page: ${right} of ${boxes.length} right at the first choice` +
      (rest ? `, ${rest} not made yet.` : ".");
    again.hidden = rest === boxes.length;
  };
  const store = () => {
    try { localStorage.setItem(key, JSON.stringify(chosen)); } catch { /* it counts until the page is left */ }
    show();
  };
  for (const [answer, n] of answers) {
    answer.querySelector("summary").addEventListener("click", () => {
      chosen[answer.name] ??= n;
      store();
    });
  }
  again.addEventListener("click", () => {
    chosen = {};
    for (const [answer] of answers) answer.open = false;
    store();
  });
  show();
});
