import { Command } from 'commander'
import { parseTrainConfig } from '../demos/experiments.ts'
import { browserKinds, chosenBrowser } from '../node/browser-choice.ts'
import { ensureBuilt } from '../node/build.ts'
import { browserStarter } from '../node/open-browser.ts'
import { serve } from '../node/serve.ts'
import type { TabBrowser } from '../node/tab.ts'
import { markdownTable } from '../src/util/markdown.ts'
import { closeAfter } from './command/close-after.ts'
import { countOf, jsonOption, saveOption, someOf } from './command/flags.ts'
import { loadNow, machineLine, today } from './command/machine.ts'
import { note } from './command/note.ts'
import { publish } from './command/results.ts'
import { modelNames, models } from './models.ts'
import { median, pairRatios, spread } from './statistics.ts'
import { stepMs } from './step-ms.ts'

/** `npm run bench -- firefox`: steps in Firefox beside steps in Chromium, each on its software adapter. */

interface Flags {
  models: string[]
  rounds: number
  json: boolean
  save: boolean
}

const command = new Command('npm run bench -- firefox')
  .description(
    'Trains in one tab of Firefox and one of Chromium, in turns, on their software adapters, and compares the times of their steps.',
  )
  .option('--models <names>', modelNames.join(','), someOf(modelNames), modelNames)
  .option('--rounds <count>', 'runs in each browser', countOf(3), 5)
  .addOption(jsonOption())
  .addOption(saveOption())

const steps = 30
const skipped = 10
const batchSize = 64

/** units: ms a step, by round. */
interface Line {
  model: string
  chromium: number[]
  firefox: number[]
}

type Browsers = Readonly<Record<(typeof browserKinds)[number], TabBrowser>>

export async function benchFirefox(argv: readonly string[]): Promise<void> {
  const flags = command.parse(argv, { from: 'user' }).opts<Flags>()
  const load = loadNow()
  const served = await serve({ root: await ensureBuilt({ log: note }), port: 0 })
  const toClose = [() => served.close()]
  const lines = await closeAfter(
    async () => void (await Promise.all(toClose.map((close) => close()))),
    async () => {
      const open = async (kind: keyof Browsers) => {
        const start = await browserStarter(chosenBrowser(kind))
        const browser = await start('software', { isHeaded: false, timesKernels: false }, note)
        toClose.push(() => browser.close())
        return browser
      }
      const browsers = { chromium: await open('chromium'), firefox: await open('firefox') }
      const lines: Line[] = []
      for (const model of flags.models)
        lines.push(await timeModel(browsers, served.localUrl, model, flags.rounds))
      return lines
    },
  )
  const machine = machineLine('before the run', load)
  const heading = `${today()}, **software adapters**: Chromium on SwiftShader, Firefox on lavapipe; ${machine}. Runs of ${steps} steps of ${batchSize} samples in a fresh tab, in the two browsers in turns; of each the median of its last ${steps - skipped} steps.`
  const title = 'firefox'
  const report = `${heading}\n\n${tableOf(lines)}\n`
  await publish({ report, rows: lines, nameParts: [title], title }, flags)
}

function tableOf(lines: readonly Line[]): string {
  const rows = lines.map(({ model, chromium, firefox }) => {
    const ratios = pairRatios(firefox, chromium)
    const [c, f] = [median(chromium), median(firefox)]
    const perSecond = [c, f].map((ms) => ((1000 * batchSize) / ms).toFixed(0))
    const between = spread(ratios).map((ratio) => ratio.toFixed(2))
    const times = [c, f].map((ms) => ms.toFixed(1))
    return [model, ...times, ...perSecond, `**${median(ratios).toFixed(2)}**`, between.join(' to ')]
  })
  const heads = ['Chromium, ms', 'Firefox, ms', 'Chromium, samples/s', 'Firefox, samples/s']
  return markdownTable(['model', ...heads, 'Firefox / Chromium, ms', 'rounds'], rows)
}

async function timeModel(
  browsers: Browsers,
  url: string,
  model: string,
  rounds: number,
): Promise<Line> {
  const config = parseTrainConfig({ ...models[model], batchSize, steps, elastic: false })
  const line: Line = { model, chromium: [], firefox: [] }
  for (let round = 0; round < rounds; round++) {
    note(`${model}, round ${round + 1} of ${rounds}`)
    for (const kind of round % 2 === 0 ? browserKinds : browserKinds.toReversed())
      line[kind].push(
        await stepMs(browsers[kind], { url, config, tabs: 1, skipped, device: 'webgpu' }),
      )
  }
  return line
}
