import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { chromium } from 'playwright'
import { visit, visitFirstScreen } from '../bench/start/visit.ts'
import { ownPages, trainedDemos } from '../demos/all-demos.ts'
import { browserFlags, findBrowser } from '../node/chromium.ts'
import { serve } from '../node/serve.ts'
import { repository } from '../tests/support/repository.ts'
import { firstLoadBudget, kilobytes, sizeLines, sumOf } from './size/budget.ts'
import { buildChunks, type Chunk, withImports } from './size/chunks.ts'

/**
 * `npm run size`: what the pages load, and when, in gzip; fails where index.html's first load is above its budget.
 *
 * The first load and what Start fetches are what a headless browser asked the server for, with the default experiment. All else that
 * index.html can reach is listed by what loads it.
 */
/** When a part comes, by the source that it begins with. */
const whenBySource: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    trainedDemos.flatMap((name) => [
      [`demos/${name}/demo.ts`, `Start, demo ${name}`],
      [`demos/${name}/view.tsx`, `demo ${name} chosen`],
    ]),
  ),
  'demos/digits/read-idx-file.ts': 'files are given to the demo digits',
  'demos/text/story.ts': 'Start, demo text with the built-in text',
  'src/nn/cnn.ts': 'Start, model cnn',
  'src/graph/run/reference-program.ts': 'Start, ?device=reference',
  'src/graph/inside/instruments.ts': 'Start, ?debug=2 and up, or ?trace=1',
  'src/graph/compile/detect-anomaly.ts': 'a loss that is not finite',
  'uqr/dist/index.mjs': 'the QR code is shown',
  'src/graph/compile/watched-program.ts': 'detectAnomaly, which the page does not use',
  'src/optim/grad-scaler.ts': 'Start, precision float16',
  'src/peer/tab/laned-connection.ts': 'a member beyond this browser',
  'src/peer/link/relay-link.ts': 'a link through the server',
  'src/trainer/saves/checkpoint-shelf.ts': 'checkpoints in this browser, or a run that saves some',
  'src/ddp/checkpoint/model-file.ts': 'saving the model',
  'src/trainer/saves/run-checkpoint.ts': 'Start, with checkpoints',
  'uplot/dist/uPlot.esm.js': 'the Lab',
  'src/ui/run/run-plot.tsx': 'the Lab',
  'src/ui/status/remedies.ts': 'a member that cannot be reached',
  'src/worker/compute/training.ts': 'Start',
  'src/worker/page/member-run.ts': 'Start',
}

const { folder, chunks } = await buildChunks(repository)
let isWithin = false
try {
  const { firstLoad, lab, start, firstScreen } = await fetched()
  const own = sum(firstLoad)
  print('index.html, first load: until Start can be pressed', firstLoad)
  print('the Lab fetches besides', lab)
  print('pressing Start fetches besides, up to the first step', start)
  console.log(
    `${kilobytes(own + sum(lab) + sum(start))}  from an empty cache to the first step in the Lab`,
  )
  console.log(
    `${kilobytes(sum(firstScreen))}  from the bare address to the first step of the first screen\n`,
  )
  printLater([...firstLoad, ...lab, ...start])
  for (const page of [
    'selftest.html',
    'bench.html',
    'tab.html',
    ...ownPages.map((name) => `demos/${name}/index.html`),
  ])
    console.log(`${kilobytes(sum(ofPage(page)))}  ${page}, before what it loads later`)
  isWithin = own <= firstLoadBudget
  console.log(
    `\nfirst load of index.html:${kilobytes(own)} of ${kilobytes(firstLoadBudget).trim()}${isWithin ? '' : `: TOO LARGE by ${own - firstLoadBudget} bytes`}`,
  )
} finally {
  rmSync(folder, { recursive: true })
}
process.exit(isWithin ? 0 : 1)

async function fetched() {
  const served = await serve({ root: folder, port: 0 })
  const browser = await chromium.launch({
    executablePath: findBrowser(),
    args: browserFlags('software'),
  })
  try {
    const visited = await visit(browser, served)
    return { ...visited, firstScreen: await visitFirstScreen(browser, served) }
  } finally {
    await browser.close()
    await served.close()
  }
}

function sum(files: Iterable<string>): number {
  return sumOf([...files].map((file) => chunks.get(file)?.gzipBytes ?? 0))
}

function wordsOf({ name, source, modules }: Chunk): string {
  return (
    source ||
    `${name}, shared: ${modules.length === 1 ? modules[0] : `${modules[0]} and ${modules.length - 1} more`}`
  )
}

function print(title: string, files: readonly string[]): void {
  const sizes = files.map((file): [string, number] => {
    const chunk = chunks.get(file)
    return [`${file}  ${chunk ? wordsOf(chunk) : ''}`, chunk?.gzipBytes ?? 0]
  })
  console.log(`${title}\n${sizeLines(new Map(sizes))}\n`)
}

/** What the page's script names: its module and what is to come with it. */
function ofPage(page: string): Set<string> {
  const html = readFileSync(join(folder, page), 'utf8')
  const names = [...html.matchAll(/(?:src|href)="[./]*(assets\/[^"]+\.js)"/g)].map(
    ([, name]) => name,
  )
  return withImports(chunks, names)
}

/** Parts that index.html may load later, with what comes with each and is not there by then. */
function printLater(there: readonly string[]): void {
  /** By part: who may load it. */
  const parts = new Map<string, string>()
  const reached = withImports(chunks, ofPage('index.html'))
  // Sets grow while they are walked.
  for (const file of reached) {
    const chunk = chunks.get(file)!
    for (const later of chunk.later) {
      if (!parts.has(later)) parts.set(later, wordsOf(chunk))
      for (const one of withImports(chunks, [later])) reached.add(one)
    }
  }
  console.log('index.html, later')
  const lines = [...parts]
    .filter(([file]) => !there.includes(file))
    .map(([file, by]) => {
      const missing = [...withImports(chunks, [file])].filter((one) => !there.includes(one))
      const chunk = chunks.get(file)!
      const when = whenBySource[chunk.source] ?? `asked for by ${by}`
      return { bytes: sum(missing), text: `${wordsOf(chunk)}: ${when}` }
    })
    .sort((a, b) => b.bytes - a.bytes)
  for (const { bytes, text } of lines) console.log(`${kilobytes(bytes)}  ${text}`)
  console.log('')
}
