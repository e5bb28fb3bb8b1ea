/* What the buttons of the lab's report do. Without it the page is whole, only not sorted, copied or switched.
   SPDX-License-Identifier: Apache-2.0 */
'use strict';
const root = document.documentElement;
root.classList.add('js');
const all = (selector, of = document) => [...of.querySelectorAll(selector)];
const rows = all('main details');

const theme = document.getElementById('theme');
const isDark = () => root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme:dark)').matches;
const setTheme = (name) => {
  root.dataset.theme = name;
  theme.textContent = name === 'dark' ? 'Light' : 'Dark';
  try { localStorage.setItem('snug-theme', name); } catch (ignored) { }
};
let saved = null;
try { saved = localStorage.getItem('snug-theme'); } catch (ignored) { }
if (saved === 'dark' || saved === 'light') setTheme(saved);
theme.textContent = isDark() ? 'Light' : 'Dark';
theme.addEventListener('click', () => setTheme(isDark() ? 'light' : 'dark'));

const unfold = document.getElementById('unfold');
unfold.addEventListener('click', () => {
  const open = rows.some((row) => !row.open);
  rows.forEach((row) => { row.open = open; });
  unfold.textContent = open ? 'Close all rows' : 'Open all rows';
});
const openTarget = () => {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let row = target && target.closest('details'); row; row = row.parentElement.closest('details')) row.open = true;
  if (target) target.scrollIntoView();
};
addEventListener('hashchange', openTarget);
openTarget();

let closed = [];
addEventListener('beforeprint', () => { closed = rows.filter((row) => !row.open); closed.forEach((row) => { row.open = true; }); });
addEventListener('afterprint', () => { closed.forEach((row) => { row.open = false; }); });

const say = document.getElementById('said');
const copyText = async (text) => {
  try { await navigator.clipboard.writeText(text); return true; } catch (ignored) { }
  const area = document.createElement('textarea');
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand('copy');
  area.remove();
  return done;
};
all('button.copy').forEach((button) => button.addEventListener('click', async () => {
  const done = await copyText(button.parentElement.querySelector('pre').textContent);
  const words = done ? 'Copied' : 'Not copied';
  button.textContent = say.textContent = words;
  setTimeout(() => { button.textContent = 'Copy'; say.textContent = ''; }, 2000);
}));

const save = document.getElementById('save');
save.addEventListener('click', () => {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([document.getElementById('figures').textContent], { type: 'application/json' }));
  link.download = save.dataset.name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
});

const table = document.querySelector('table.main');
const keyOf = (row, column) => {
  const cell = row.cells[column];
  const key = cell.dataset.key ?? cell.textContent.trim();
  return key !== '' && !isNaN(key) ? Number(key) : key;
};
all('thead button', table).forEach((button) => button.addEventListener('click', () => {
  const header = button.closest('th');
  const order = header.getAttribute('aria-sort') === 'ascending' ? 'descending' : 'ascending';
  all('thead th', table).forEach((other) => other.setAttribute('aria-sort', 'none'));
  header.setAttribute('aria-sort', order);
  const sign = order === 'ascending' ? 1 : -1;
  const compare = (a, b) => typeof a === 'number' && typeof b === 'number' ? a - b : String(a).localeCompare(String(b), 'en', { numeric: true });
  const body = table.tBodies[0];
  body.append(...[...body.rows].sort((a, b) => sign * compare(keyOf(a, header.cellIndex), keyOf(b, header.cellIndex))));
}));
