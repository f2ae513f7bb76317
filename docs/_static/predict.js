// Counts, at the foot of a page, how many predictions were right at the first choice.
// The choices stay in this browser.
document.addEventListener("DOMContentLoaded", () => {
  const boxes = [...document.querySelectorAll(".bd-article .predict")];
  if (!boxes.length) return;
  const answers = boxes.flatMap((box) => [...box.querySelectorAll("details")]);
  const key = `predict ${location.pathname}`;
  let chosen = {}; // the name of a question -> the number of the answer on this page
  try { chosen = JSON.parse(localStorage.getItem(key)) ?? {}; } catch { /* nothing is stored */ }
  boxes[0].closest("section:not(section section)").insertAdjacentHTML("beforeend",
    '<p class="predicted"><span role="status"></span> <button type="button">Choose again</button></p>');
  const [words, again] = document.querySelectorAll(".predicted > *");

  const show = () => {
    answers.forEach((answer, n) => answer.classList.toggle("chosen", chosen[answer.name] === n));
    const right = document.querySelectorAll(".predict .right.chosen").length;
    const rest = boxes.length - Object.keys(chosen).length;
    words.textContent = `Predictions on this page: ${right} of ${boxes.length} right at the first choice` +
      (rest ? `, ${rest} not made yet.` : ".");
    again.hidden = rest === boxes.length;
  };
  const store = () => {
    try { localStorage.setItem(key, JSON.stringify(chosen)); } catch { /* it counts until the page is left */ }
    show();
  };
  answers.forEach((answer, n) => answer.querySelector("summary").addEventListener("click", () => {
    chosen[answer.name] ??= n;
    store();
  }));
  again.addEventListener("click", () => {
    chosen = {};
    for (const answer of answers) answer.open = false;
    store();
  });
  show();
});
