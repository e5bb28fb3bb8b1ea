// SPDX-License-Identifier: Apache-2.0
#include "lab/page/report_style.h"

namespace snug::lab {

// Dark colours are for screens alone, so that paper is light whatever was chosen.
std::string_view page_style() {
  return R"(
:root{color-scheme:light;--over:var(--bad);--paper:var(--card);--bg:#f6f7f9;--card:#fff;--fg:#1a1d21;--mu:#566070;--line:#dfe3e8;--soft:#eef1f4;--accent:#1d5bb8;
--good:#12693a;--good-bg:#e2f4e9;--bad:#b3261e;--bad-bg:#fbe6e4;--warn:#7a4d00;--warn-bg:#fbefd5;--beyond:#5b3fa8;--beyond-bg:#ece7fa;
--k0:#3b6fb6;--k1:#d9822b;--k2:#7a5ea8;--k3:#3f9b6c;--k4:#8793a1;--k5:#c2504d;--k6:#8a7a5c;--k7:#2f8ea0}
@media screen and (prefers-color-scheme:dark){:root:not([data-theme=light]){color-scheme:dark;--bg:#101317;--card:#181c22;--fg:#e7eaee;--mu:#a2acb9;--line:#2f3742;--soft:#222831;--accent:#86b4ff;
--good:#6bdc99;--good-bg:#143424;--bad:#ff9b92;--bad-bg:#421d1b;--warn:#f3c566;--warn-bg:#3b2d0d;--beyond:#c2b0ff;--beyond-bg:#2c2350;
--k0:#6f9fe0;--k1:#eaa35c;--k2:#a78fd6;--k3:#6cc295;--k4:#97a3b0;--k5:#e07f7c;--k6:#b3a283;--k7:#74c6d6}}
@media screen{:root[data-theme=dark]{color-scheme:dark;--bg:#101317;--card:#181c22;--fg:#e7eaee;--mu:#a2acb9;--line:#2f3742;--soft:#222831;--accent:#86b4ff;
--good:#6bdc99;--good-bg:#143424;--bad:#ff9b92;--bad-bg:#421d1b;--warn:#f3c566;--warn-bg:#3b2d0d;--beyond:#c2b0ff;--beyond-bg:#2c2350;
--k0:#6f9fe0;--k1:#eaa35c;--k2:#a78fd6;--k3:#6cc295;--k4:#97a3b0;--k5:#e07f7c;--k6:#b3a283;--k7:#74c6d6}}
*{box-sizing:border-box}
html{scroll-behavior:smooth;scroll-padding-top:1rem}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;overflow-wrap:anywhere}
.page{max-width:76rem;margin:0 auto;padding:1.5rem 1rem 4rem}
a{color:var(--accent)}a:focus-visible,button:focus-visible,summary:focus-visible,[tabindex]:focus-visible{outline:3px solid var(--accent);outline-offset:2px;border-radius:4px}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;top:.5rem;background:var(--card);padding:.5rem 1rem;z-index:9}
h1{font-size:1.7rem;line-height:1.25;margin:0 0 .4rem}h2{font-size:1.25rem;margin:2.6rem 0 .6rem}h3,h4{font-size:1rem;margin:0}h4{margin:1.4rem 0 .4rem}
p{margin:.5rem 0;max-width:48rem}.mu{color:var(--mu)}small,.small{font-size:.875rem}
.top{display:flex;gap:1rem;align-items:flex-start;justify-content:space-between}
.tools{display:flex;gap:.5rem;flex-wrap:wrap;margin:.8rem 0}
button{font:inherit;font-size:.875rem;color:var(--fg);background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.3rem .75rem;cursor:pointer;white-space:nowrap}
button:hover{border-color:var(--accent)}:root:not(.js) .js{display:none}
.headline{background:var(--card);border:1px solid var(--line);border-left:5px solid var(--accent);border-radius:10px;padding:.9rem 1.1rem;margin:1.2rem 0}
.headline p{margin:.15rem 0;max-width:none}.headline strong{font-size:1.15rem}
.chip{display:inline-block;border-radius:99px;padding:.05rem .6rem;font-size:.82rem;white-space:nowrap;background:var(--soft);color:var(--fg)}
.good{background:var(--good-bg);color:var(--good)}.bad{background:var(--bad-bg);color:var(--bad)}.warn{background:var(--warn-bg);color:var(--warn)}.beyond{background:var(--beyond-bg);color:var(--beyond)}
nav ul{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;list-style:none;padding:0;margin:.8rem 0}
.scroll{overflow-x:auto}.card{background:var(--card);border:1px solid var(--line);border-radius:10px}
table{border-collapse:collapse;font-size:.875rem;width:100%;overflow-wrap:break-word}caption{text-align:left;color:var(--mu);padding:.6rem .75rem}
th,td{padding:.45rem .55rem;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
tbody tr:last-child>*{border-bottom:0}thead th{color:var(--mu);font-weight:600;white-space:nowrap;vertical-align:bottom}
.n{text-align:right;font-variant-numeric:tabular-nums}td.n,td.n span{white-space:nowrap}td.n span{display:block}
.main{font-size:.8125rem}.main th,.main td{padding:.42rem .34rem}.main tr>:first-child{padding-left:.75rem}.main thead th,.main thead button{white-space:normal}.main thead button{text-align:inherit}.main small{font-size:.8rem}.main .what bdi{overflow-wrap:normal}
.main th[scope=row]{font-weight:600;min-width:8rem}.main th[scope=row] small{display:block;font-weight:400;color:var(--mu)}.main .what{min-width:7.5rem;max-width:16rem}
.main tbody tr:hover{background:var(--soft)}
thead button{border:0;background:none;padding:0;color:inherit;font-weight:600}
thead th[aria-sort=ascending] button::after{content:" ↑";content:" ↑"/""}thead th[aria-sort=descending] button::after{content:" ↓";content:" ↓"/""}
.meter{display:block;height:4px;margin-top:.3rem;background:var(--line);border-radius:2px;min-width:4.5rem}.meter,td.n .meter{white-space:normal}.meter i{display:block;height:100%;border-radius:2px;background:var(--k0)}.meter i.over{background:var(--bad)}
figure{margin:1rem 0;padding:1rem;background:var(--card);border:1px solid var(--line);border-radius:10px}figcaption{font-weight:600;margin-bottom:.5rem}figcaption span{font-weight:400;color:var(--mu)}
details figure{padding:0;border:0}.fit{width:fit-content;max-width:100%}.gap{margin:1.4rem 0 .6rem}h2+h3{margin-top:.8rem}main>h3{margin:1.6rem 0 .3rem}figure .scroll>svg,.wide>svg,.small-only>svg{display:block;width:100%;height:auto}figure .scroll>svg{min-width:40rem}.narrow .wide>svg{max-width:40rem}td.n small{display:block;white-space:nowrap;margin-left:auto}.main td.n small{font-size:.68rem}.main .chip{font-size:.75rem;padding:.05rem .45rem;white-space:normal;border-radius:.7rem}td[data-label=Deviation] small{white-space:normal;max-width:6.2rem}
.key{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;list-style:none;padding:0;margin:.5rem 0 0;font-size:.875rem;color:var(--mu)}.key i{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.4em;vertical-align:-.05em}.kept{background:repeating-linear-gradient(45deg,var(--line),var(--line) 3px,transparent 3px,transparent 6px)!important;box-shadow:inset 0 0 0 1px var(--line)}.small-only,.paper{display:none}.key i.tick{width:2px;height:1em;background:var(--bad)}
.bars{list-style:none;padding:0;margin:.6rem 0 0}.bars li{display:grid;grid-template-columns:13rem 1fr 7.5rem;gap:.2rem .8rem;align-items:center;padding:.22rem 0;font-size:.9rem}
.bar{position:relative;display:flex;height:1.15rem;background:var(--soft);border-radius:3px}.bar i{display:block;height:100%;min-width:0}.bar i:first-child{border-radius:3px 0 0 3px}.bar b{position:absolute;top:-.25rem;bottom:-.25rem;width:2px;background:var(--bad)}
.bars .sum{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.sweep{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr));gap:1rem}.sweep figure{margin:0;min-width:0}
.tries{display:flex;flex-wrap:wrap;gap:.4rem;list-style:none;padding:0;margin:.5rem 0}
details.more>summary{cursor:pointer;margin:1.4rem 0 .6rem;font-weight:600}
details.row{background:var(--card);border:1px solid var(--line);border-radius:10px;margin:.6rem 0}
details.row>summary{display:flex;flex-wrap:wrap;gap:.2rem .8rem;align-items:baseline;padding:.7rem 1rem;cursor:pointer;list-style:none}details.row>summary::-webkit-details-marker{display:none}
details.row>summary::before{content:"▸";color:var(--mu);width:.8em}details.row[open]>summary::before{content:"▾"}
summary .end{margin-left:auto;display:flex;flex-wrap:wrap;gap:.3rem .8rem;align-items:baseline;font-variant-numeric:tabular-nums}
.body{padding:0 1rem 1rem;border-top:1px solid var(--line)}.body>p{max-width:60rem}.body table{width:auto}
.code{display:flex;gap:.6rem;align-items:flex-start;margin:.4rem 0}pre{background:var(--soft);border-radius:8px;padding:.6rem .8rem;margin:0;font:13px/1.5 ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre-wrap;overflow-wrap:anywhere;flex:1;min-width:0}
pre.log{white-space:pre;overflow-x:auto;max-height:24rem;overflow-y:auto}
dl{display:grid;grid-template-columns:fit-content(14rem) minmax(0,1fr);gap:.25rem 1.2rem;margin:.6rem 0}dt{color:var(--mu)}dd{margin:0;min-width:0}
svg text{fill:var(--mu);font-size:12px;font-family:inherit}
.limit{stroke:var(--bad);stroke-width:1.5;stroke-dasharray:6 4}
.chart .grid{stroke:var(--line)}.chart .t{font-weight:600;font-size:14px;fill:var(--fg)}.chart path{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round}.chart path.faint{stroke-width:1;opacity:.35}.chart path.dashed{stroke-dasharray:2 5}.chart path.cross{stroke-width:3}
.chart rect,.chart circle{fill:var(--c)}.chart circle.ring{fill:var(--card);stroke:var(--c);stroke-width:2}.chart .best{stroke:var(--mu);stroke-dasharray:3 3}.chart .halo{fill:var(--fg);paint-order:stroke;stroke:var(--card);stroke-width:3px}
.chart a:focus-visible{outline:3px solid var(--accent)}
.c0{--c:var(--k0)}.c1{--c:var(--k1)}.c2{--c:var(--k2)}.c3{--c:var(--k3)}.c4{--c:var(--k4)}.c5{--c:var(--k5)}.c6{--c:var(--k6)}.c7{--c:var(--k7)}
@media(max-width:46rem){
.page{padding:1rem .8rem 3rem}h1{font-size:1.35rem}.top{flex-direction:column;gap:0}
.main,.main tbody,.main tr,.main th,.main td{display:block;width:100%}.main thead{display:none}.main caption{display:block}
.main tbody tr{padding:.7rem .8rem;border-bottom:1px solid var(--line)}.main th[scope=row],.main td{border:0;padding:.12rem 0;max-width:none!important;min-width:0!important}
.main td.n small{margin-left:0}.main td{display:grid;grid-template-columns:8rem 1fr;gap:.6rem;text-align:left}.main td::before{content:attr(data-label);white-space:normal;color:var(--mu)}.main td.n,.main td.n span{text-align:left}.main{font-size:.875rem}.main td.none{display:none}.meter{max-width:10rem}.chip{justify-self:start}
.wide{display:none}.small-only{display:block}.chart text,figure svg text{font-size:13px}
.bars li{grid-template-columns:1fr auto}.bars .bar{grid-column:1/3;grid-row:2}summary .end{margin-left:1.4em;width:100%}
.body th,.body td{padding:.35rem .3rem}.body thead th{white-space:normal}dl{grid-template-columns:1fr}dd{margin-bottom:.4rem}.code{flex-direction:column}.code pre{width:100%}figure{padding:.8rem}}
@media print{
@page{margin:11mm}body{background:#fff;font-size:9pt;line-height:1.4}.page{max-width:none;padding:0}.tools,nav,.skip,button.copy,tr.minor,details.more,.desk{display:none!important}.paper{display:block}thead button::after{content:""!important}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}details::details-content{content-visibility:visible!important;block-size:auto!important}
.scroll,pre.log{overflow:visible;max-height:none;white-space:pre-wrap}table,.main{font-size:7pt}.chip{font-size:7pt;padding:0 .4em}th,td{padding:.2rem .3rem}.main .what,.main th[scope=row]{min-width:6.5rem}.meter{min-width:0}thead th{white-space:normal}figure .scroll>svg{min-width:0}
.wide{display:block}.small-only{display:none}h2{margin:1.2rem 0 .4rem}h4{margin:.6rem 0 .2rem}figure{padding:.5rem;margin:.5rem 0}ul{margin:.2rem 0}
.sweep{grid-template-columns:1fr 1fr;gap:.4rem}.key{font-size:7pt;margin:.1rem 0 0;gap:.1rem .8rem}p{max-width:none}thead button{font-size:inherit}
details.row{margin:.3rem 0;break-inside:avoid}details.row>summary{padding:.2rem .6rem}.body>p:not(:last-child){break-after:avoid}.again,pre.log{break-before:avoid}.side{break-inside:avoid}details.row>summary::before{content:none}
.body{padding:0 .6rem .25rem;display:grid;grid-template-columns:4.6fr 3.6fr 4.2fr;gap:0 .9rem;align-items:start}.body>*{grid-column:1/-1;min-width:0}
.drawings{display:contents}.drawings>figure{grid-column:auto;min-width:0;margin:.25rem 0}.drawings>figure:only-child{grid-column:1/3}.drawings+.side{grid-column:3}.drawings .wide{display:none}.drawings .small-only{display:block}
.body>p{margin:.12rem 0;max-width:none}.body figcaption,.body h4{font-size:8pt}.body h4{margin:.25rem 0 .05rem}.body th,.body td{padding:.02rem .3rem;border:0;font-size:6.5pt;line-height:1.25}.body td.n small{display:inline}.body ul{font-size:7.5pt;padding-left:1rem}
.body dl,pre{font-size:7pt;line-height:1.25;padding:.15rem .5rem}.again{display:flex;gap:.6rem;align-items:baseline}.again h4{white-space:nowrap}.again .code{flex:1;margin:.15rem 0}
figure,tr,.bars li,pre,.again,dl>*{break-inside:avoid}h2,h3,h4,summary,caption,thead{break-after:avoid}.again h4,summary h3{break-after:auto}a{color:inherit;text-decoration:none}}
@media(prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
)";
}

std::string_view page_script() {
  return R"(
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
)";
}

std::string_view page_script_hash() { return "vLdSbfCIwZ3vNVsh4/kzps7uXcPZ5K6iNNl4WnVLYCo="; }

}  // namespace snug::lab
