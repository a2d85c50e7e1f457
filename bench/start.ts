import { Command } from 'commander'
import { trainedDemos } from '../demos/all-demos.ts'
import type { AdapterChoice } from '../node/chromium.ts'
import { openTrainingHost } from '../node/training-host.ts'
import { markdownTable } from '../src/util/markdown.ts'
import type { StartMoment } from '../src/worker/page/start-marks.ts'
import { closeAfter } from './command/close-after.ts'
import { adapterOption, countOf, jsonOption, saveOption } from './command/flags.ts'
import { loadNow, machineLine, today } from './command/machine.ts'
import { note } from './command/note.ts'
import { publish } from './command/results.ts'
import { visit } from './start/visit.ts'
import { median } from './statistics.ts'

/** `npm run bench -- start`: from pressing Start to the first training step, and where that time goes. */

interface Flags {
  rounds: number
  adapter: AdapterChoice
  json: boolean
  save: boolean
}

const command = new Command('npm run bench -- start')
  .description(
    'Opens the training page with each demo, presses Start, and reads the marks that the page leaves in the browser’s timeline up to the first step. One rank, without kernel tuning.',
  )
  .option('--rounds <count>', 'number of rounds for each experiment', countOf(1), 5)
  .addOption(adapterOption())
  .addOption(jsonOption())
  .addOption(saveOption())

/** units: ms. */
const goal = 2000

/** Experiments by the query that opens them; the first one is what the page begins with. */
const experiments: Readonly<Record<string, string>> = {
  'digits, mlp (the default)': '',
  'digits, cnn': '?model=cnn',
  ...Object.fromEntries(trainedDemos.slice(1).map((name) => [name, `?demo=${name}`])),
}

/** The part of a start that ends at each moment, from the one before it. */
const parts: readonly (readonly [until: StartMoment, words: string])[] = [
  ['sent', 'room'],
  ['load', 'code'],
  ['broadcast', 'data'],
  ['compile', 'model'],
  ['train', 'trace, plan, pipelines'],
  ['step 1', 'first step'],
]

interface Line {
  experiment: string
  firstStepMs: number
  slowestMs: number
  /** Medians by part. */
  ms: Record<string, number>
}

export async function benchStart(argv: readonly string[]): Promise<void> {
  const flags = command.parse(argv, { from: 'user' }).opts<Flags>()
  const load = loadNow()
  const { served, browser, close } = await openTrainingHost({ adapter: flags.adapter, note })
  const { lines, browserVersion, adapter } = await closeAfter(close, async () => {
    // The browser is warm then: its processes and the adapter have begun.
    const { adapter } = await visit(browser, served)
    const lines: Line[] = []
    for (const [experiment, query] of Object.entries(experiments)) {
      note(experiment)
      const visits: Record<StartMoment, number>[] = []
      for (let round = 0; round < flags.rounds; round++)
        visits.push((await visit(browser, served, query)).moments)
      lines.push(lineOf(experiment, visits))
    }
    return { lines, browserVersion: browser.version(), adapter }
  })
  const machine = machineLine('before the run', load)
  const software = /software/.test(adapter) ? '; **software adapter**' : ''
  const heading = `${today()}, Chromium ${browserVersion}, ${machine}, adapter ${adapter}${software}. One rank, page loaded, its caches empty, browser warm, kernels not tuned; medians of ${flags.rounds} in ms from pressing Start.`
  const table = markdownTable(
    ['experiment', ...parts.map(([, words]) => words), 'first step after', 'slowest', 'goal'],
    lines.map(({ experiment, ms, firstStepMs, slowestMs }) => [
      experiment,
      ...parts.map(([, words]) => ms[words].toFixed(0)),
      firstStepMs.toFixed(0),
      slowestMs.toFixed(0),
      `≤ ${goal}: ${firstStepMs <= goal ? 'yes' : 'NO'}`,
    ]),
  )
  await publish(
    {
      report: `${heading}\n\n${table}\n`,
      rows: lines,
      nameParts: ['chromium', browserVersion, 'start'],
      title: 'from Start to the first step',
    },
    flags,
  )
}

function lineOf(experiment: string, visits: readonly Record<StartMoment, number>[]): Line {
  const firsts = visits.map((moments) => moments['step 1'])
  const ms: Line['ms'] = {}
  let before: StartMoment = 'pressed'
  for (const [until, words] of parts) {
    const from = before
    ms[words] = median(visits.map((moments) => moments[until] - moments[from]))
    before = until
  }
  return { experiment, firstStepMs: median(firsts), slowestMs: Math.max(...firsts), ms }
}
