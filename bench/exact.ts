import { Command } from 'commander'
import type { Browser } from 'playwright'
import { parseTrainConfig } from '../demos/experiments.ts'
import type { AdapterChoice } from '../node/chromium.ts'
import { chromiumTabs } from '../node/chromium-tabs.ts'
import { deviceFlag } from '../node/command-line.ts'
import { openTrainingHost } from '../node/training-host.ts'
import { meanStepsBetweenAudits, stepsBetweenAudits } from '../src/ddp/exact/audit.ts'
import type { DeviceChoice } from '../src/util/device.ts'
import { markdownTable } from '../src/util/markdown.ts'
import { closeAfter } from './command/close-after.ts'
import { adapterOption, countOf, jsonOption, saveOption, someOf } from './command/flags.ts'
import { adapterWords, loadNow, machineLine, today } from './command/machine.ts'
import { note } from './command/note.ts'
import { publish } from './command/results.ts'
import { modelNames, models } from './models.ts'
import { mean, median, pairRatios, spread } from './statistics.ts'
import { type StepParts, stepMs, stepTimes } from './step-ms.ts'

/** `npm run bench -- exact`: what a step with the setting `exact` costs, against a plain one. */

interface Flags {
  models: string[]
  tabs: number[]
  rounds: number
  adapter: AdapterChoice
  device: DeviceChoice
  json: boolean
  save: boolean
}

const command = new Command('npm run bench -- exact')
  .description(
    'Trains in tabs with and without exact, in turns, each run in fresh tabs of one browser, and compares the times of their steps.',
  )
  .option('--models <names>', modelNames.join(','), someOf(modelNames), modelNames)
  .option('--tabs <numbers>', 'numbers of tabs', someOf([1, 2, 3, 4]), [1, 2])
  .option('--rounds <count>', 'runs of each kind', countOf(3), 5)
  .addOption(adapterOption())
  .addOption(deviceFlag().default('webgpu'))
  .addOption(jsonOption())
  .addOption(saveOption())

const steps = 30
/** Of them. */
const skipped = 10
/** At most this much over a plain step makes `exact` the default. */
const goal = 1.15
/** What audits may cost beside steps without them. */
const auditGoal = 0.05
/** Of an audited run, steps that are not counted, and steps that are: at least two of these have audits. */
const [auditSkipped, auditCounted] = [25, 2 * stepsBetweenAudits.max]
/** Of each model, so that a virtual worker of a step's 8 has 8 of them. */
const batchSize = 64

/** A model in a number of tabs. units: ms a step, by round. */
interface Line {
  model: string
  tabs: number
  batchSize: number
  virtualWorkers: number
  plain: number[]
  exact: number[]
  audits: Audit[]
}

/** units: ms. */
interface Audit {
  audit: number
  /** The median of the run's steps without one. */
  usual: number
}

export async function benchExact(argv: readonly string[]): Promise<void> {
  const flags = command.parse(argv, { from: 'user' }).opts<Flags>()
  const load = loadNow()
  const { served, browser, close } = await openTrainingHost({ adapter: flags.adapter, note })
  const { lines, version, adapter } = await closeAfter(close, async () => {
    const adapter = await adapterWords(browser)
    const lines: Line[] = []
    for (const model of flags.models)
      for (const tabs of flags.tabs)
        lines.push(
          await timeKinds(browser, served.localUrl, model, tabs, flags.rounds, flags.device),
        )
    return { lines, version: browser.version(), adapter }
  })
  const machine = machineLine('before the run', load)
  const heading = `${today()}, Chromium ${version}, device ${flags.device}, ${adapter}, ${machine}. Runs of ${steps} steps in fresh tabs of one browser, which exchange over ports, with and without \`exact\` in turns; of each the median of its last ${steps - skipped} steps.`
  const report = `${heading}\n\n${tableOf(lines)}\n\nGoal for a default: at most ${goal}.\n${auditsOf(lines)}`
  const title = 'exact'
  await publish({ report, rows: lines, nameParts: ['chromium', version, title], title }, flags)
}

function tableOf(lines: readonly Line[]): string {
  const rows = lines.map(({ model, tabs, batchSize, virtualWorkers, plain, exact }) => {
    const ratios = pairRatios(exact, plain)
    const between = spread(ratios).map((ratio) => ratio.toFixed(2))
    const times = [median(plain), median(exact)].map((ms) => ms.toFixed(1))
    const ratio = median(ratios)
    const sizes = [tabs, batchSize, virtualWorkers, batchSize / virtualWorkers].map(String)
    const cells = [model, ...sizes, ...times, `**${ratio.toFixed(2)}**`, between.join(' to ')]
    return { ratio, cells }
  })
  // The dearest first.
  rows.sort((a, b) => b.ratio - a.ratio)
  return markdownTable(
    [
      ...['model', 'tabs', 'batch size', 'virtual workers', 'samples per virtual worker'],
      ...['plain, ms', 'exact, ms', 'exact / plain', 'rounds'],
    ],
    rows.map(({ cells }) => cells),
  )
}

/** What audits cost; empty where there were none. */
function auditsOf(lines: readonly Line[]): string {
  const rows = lines
    .filter(({ audits }) => audits.length > 0)
    .map(({ model, tabs, audits }) => {
      const costs = audits.map(({ audit, usual }) => audit / usual / meanStepsBetweenAudits)
      const times = [
        median(audits.map(({ usual }) => usual)),
        median(audits.map(({ audit }) => audit)),
      ].map((ms) => ms.toFixed(1))
      const perCent = (cost: number) => `${(100 * cost).toFixed(1)} %`
      const between = spread(costs).map(perCent)
      return [model, String(tabs), ...times, `**${perCent(mean(costs))}**`, between.join(' to ')]
    })
  if (rows.length === 0) return ''
  const table = markdownTable(
    [...['model', 'tabs', 'step, ms', 'audit, ms'], ...['audits, of a step', 'single audits']],
    rows,
  )
  return `\nFrom one audit to the next it is ${stepsBetweenAudits.min} to ${stepsBetweenAudits.max} steps, ${meanStepsBetweenAudits} in the mean. The table has the median step without one, the median audit, and what an audit adds to each step at that mean, in the mean of all audits. Goal: at most ${100 * auditGoal} %.\n\n${table}\n`
}

async function timeKinds(
  browser: Browser,
  url: string,
  model: string,
  tabs: number,
  rounds: number,
  device: DeviceChoice,
): Promise<Line> {
  const config = parseTrainConfig({ ...models[model], batchSize, steps, elastic: false })
  const { virtualWorkers } = config
  const line: Line = { model, tabs, batchSize, virtualWorkers, plain: [], exact: [], audits: [] }
  for (let round = 0; round < rounds; round++) {
    note(`${model} in ${tabs === 1 ? 'one tab' : `${tabs} tabs`}, round ${round + 1} of ${rounds}`)
    const kinds = ['plain', 'exact'] as const
    for (const kind of round % 2 === 0 ? kinds : kinds.toReversed()) {
      const timed = {
        url,
        config: { ...config, exact: kind === 'exact' },
        tabs,
        skipped,
        switches: { device },
        // As `npm run train` has it.
        transport: 'auto' as const,
      }
      line[kind].push(await stepMs(chromiumTabs(browser), timed))
    }
    if (device === 'cpu' && tabs > 1) {
      const audited = { ...config, exact: true, steps: auditSkipped + auditCounted }
      const timed = {
        url,
        config: audited,
        tabs,
        skipped: auditSkipped,
        switches: { device },
        transport: 'auto' as const,
      }
      line.audits.push(...auditsIn(await stepTimes(chromiumTabs(browser), timed)))
    }
  }
  return line
}

function auditsIn(times: readonly StepParts[]): Audit[] {
  const usual = median(times.filter(({ audit }) => audit === 0).map(({ total }) => total))
  return times.filter(({ audit }) => audit > 0).map(({ audit }) => ({ audit, usual }))
}
