import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Command, Option } from 'commander'
import type { AdapterChoice } from '../node/chromium.ts'
import { gpipeOrder } from '../src/parallel/pipeline/orders.ts'
import { simulateSchedule, type TaskSpan } from '../src/parallel/pipeline/simulate.ts'
import { markdownTable } from '../src/util/markdown.ts'
import { closeAfter } from './command/close-after.ts'
import { adapterOption, countOf, jsonOption, saveOption } from './command/flags.ts'
import { loadNow, machineLine, today } from './command/machine.ts'
import { note } from './command/note.ts'
import { publish } from './command/results.ts'
import { openHost } from './host.ts'
import { barLines, barsAsSvg, stripLines } from './split/plot.ts'
import {
  type Split,
  type SplitFacts,
  type SplitTask,
  type SplitTimes,
  sizeOf,
} from './split/task.ts'
import { percentMore } from './statistics.ts'

/**
 * `npm run bench -- split`: the experiment of PyTorch's model-parallel tutorial: a step on one device, with its layers on two, and pipelined in
 * micro-batches of several sizes.
 */

interface Flags extends SplitTask {
  sizes: number[]
  repeats: number
  waiting: boolean
  adapter: AdapterChoice
  json: boolean
  save: boolean
}

const warmups = 2
const tutorialSizes = [1, 3, 5, 8, 10, 12, 20, 40, 60]

/** Stated costs of the simulated devices, in shares of a step on one device. Stages take what their layers were measured to. */
const simulated = { forward: 1 / 3, perTask: 0.003, transfer: 0.003 }

const command = new Command('npm run bench -- split')
  .description(
    'Times a training step on one device, with its layers on several, and pipelined in micro-batches of several sizes. Logical devices share one adapter, so measured times show costs, not speed-up; the column of simulated devices shows what a schedule would give.',
  )
  .addOption(
    new Option(
      '--model <name>',
      'cnn: small; resnet50: the model of the tutorial, slow without a GPU',
    )
      .choices(['cnn', 'resnet50'])
      .default('cnn'),
  )
  .option('--batch <samples>', 'samples of a step', countOf(1), 120)
  .option('--stages <count>', 'devices', countOf(2), 2)
  .option(
    '--sizes <list>',
    'samples of a micro-batch, each of which must divide the batch',
    (text) => text.split(',').map(countOf(1)),
    tutorialSizes,
  )
  .option('--repeats <count>', 'timed steps of each', countOf(2), 10)
  .option('--waiting', 'each size also with overlapsSends: false', false)
  .addOption(adapterOption())
  .addOption(jsonOption('the times as JSON objects'))
  .addOption(saveOption())

export async function benchSplit(argv: readonly string[]): Promise<void> {
  const flags = command.parse(argv, { from: 'user' }).opts<Flags>()
  const load = loadNow()
  const host = await openHost(flags.adapter, note, ['bench/split/page.html'])
  const { browser, url } = host
  await closeAfter(
    () => host.close(),
    async () => {
      const page = await browser.newPage()
      await page.goto(`${url}split/page.html`)
      await page.waitForFunction(() => 'benchSplit' in window)
      const { model, batch, stages, repeats } = flags
      const device = await page.evaluate((task) => window.benchSplit.open(task), {
        model,
        batch,
        stages,
      })
      const waiting = flags.sizes.map((size): Split => `${size} waiting`)
      const splits: Split[] = ['one', 'layers', ...flags.sizes, ...(flags.waiting ? waiting : [])]
      const facts: SplitFacts[] = []
      for (const split of splits) {
        note(`compiling: ${nameOf(split)}`)
        facts.push(await page.evaluate((given) => window.benchSplit.prepare(given), split))
      }
      const stepMs = new Map<Split, number[]>(splits.map((split) => [split, []]))
      for (let round = -warmups; round < repeats; round++) {
        note(round < 0 ? 'warming up' : `round ${round + 1} of ${repeats}`)
        // Each round begins with another one.
        const first = (round + warmups) % splits.length
        for (const split of [...splits.slice(first), ...splits.slice(0, first)]) {
          const ms = await page.evaluate((given) => window.benchSplit.run(given), split)
          if (round >= 0) stepMs.get(split)!.push(ms)
        }
      }
      const times = facts.map((one): SplitTimes => ({ ...one, stepMs: stepMs.get(one.split)! }))
      note('timing the layers')
      const shares = await page.evaluate(() => window.benchSplit.stageShares())
      const report = formatReport(flags, times, shares, device, browser.version(), load)
      const nameParts = ['chromium', browser.version(), 'split', model]
      await publish({ report, rows: times, nameParts, title: 'split' }, flags)
      if (!flags.save) return
      const file = join(import.meta.dirname, 'results', `${today()}-split-${model}.svg`)
      await writeFile(file, barsAsSvg('Step time by micro-batch, ms', barsOf(times)))
      note(`saved ${file}`)
    },
  )
}

function nameOf(split: Split): string {
  if (split === 'one') return 'one device'
  if (split === 'layers') return 'layers on devices'
  return `micro-batches of ${sizeOf(split)}${typeof split === 'string' ? ', sends awaited' : ''}`
}

const mean = (values: readonly number[]) =>
  values.reduce((sum, value) => sum + value, 0) / values.length
const deviation = (values: readonly number[]) =>
  Math.sqrt(mean(values.map((value) => (value - mean(values)) ** 2)))

const barsOf = (times: readonly SplitTimes[]) =>
  times.map(({ split, stepMs }) => ({
    name: nameOf(split),
    value: mean(stepMs),
    deviation: deviation(stepMs),
  }))

/** A step on simulated devices; times are shares of a step on one device. */
function simulate(
  { batch, stages }: SplitTask,
  shares: readonly number[],
  split: Split,
): readonly TaskSpan[] {
  const { forward, perTask, transfer } = simulated
  const microBatches = batch / (sizeOf(split) ?? batch)
  const orders = Array.from({ length: stages }, (_, device) =>
    gpipeOrder({ device, deviceCount: stages, stageCount: stages, microBatches }),
  )
  return simulateSchedule(orders, {
    forwardMs: (stage) => (forward * shares[stage]) / microBatches + perTask,
    backwardMs: (stage) => ((1 - forward) * shares[stage]) / microBatches + perTask,
    transferMs: transfer,
  })
}

const endOf = (spans: readonly TaskSpan[]): number => Math.max(...spans.map(({ endMs }) => endMs))

function formatReport(
  flags: Flags,
  times: readonly SplitTimes[],
  shares: readonly number[],
  device: string,
  browser: string,
  load: string,
): string {
  const { model, batch, stages, repeats } = flags
  const [oneMs, layersMs] = times.map(({ stepMs }) => mean(stepMs))
  const mib = (bytes: readonly number[]) =>
    bytes.map((one) => (one / 2 ** 20).toFixed(2)).join(', ')
  const rows = times.map(({ split, stepMs, compileMs, peakBytes, sentBytes }) => {
    const microBatches = batch / (sizeOf(split) ?? batch)
    const ideal = split === 'one' ? 1 : (microBatches + stages - 1) / (microBatches * stages)
    const bubble = split === 'one' ? 0 : (stages - 1) / (microBatches + stages - 1)
    return [
      nameOf(split),
      `${mean(stepMs).toFixed(1)} ± ${deviation(stepMs).toFixed(1)}`,
      (mean(stepMs) / oneMs).toFixed(3),
      percentMore(layersMs, mean(stepMs)).toFixed(0),
      ideal.toFixed(3),
      (100 * bubble).toFixed(0),
      ((100 * ideal * oneMs) / mean(stepMs)).toFixed(0),
      split === 'one' ? '1.000' : endOf(simulate(flags, shares, split)).toFixed(3),
      mib(peakBytes),
      mib(sentBytes),
      (compileMs / 1000).toFixed(1),
    ]
  })
  const table = markdownTable(
    [
      'step',
      'ms, mean ± deviation',
      'of one device',
      'faster than layers alone, %',
      'ideal',
      'bubble of it, %',
      'of the ideal, %',
      'simulated devices',
      'plan by device, MiB',
      'sent by device, MiB',
      'compiling, s',
    ],
    rows,
  )
  const { forward, perTask, transfer } = simulated
  const heading = `${today()}, Chromium ${browser}, ${device}, ${machineLine('before the run', load)}. ${model}, ${batch} samples, ${stages} logical devices of one adapter, ${repeats} steps each. They share its compute units, so the measured times show what splitting costs, and no speed-up.`
  const percent = (share: number) => `${Math.round(100 * share)} %`
  const exact = (share: number) => `${Number((100 * share).toPrecision(2))} %`
  const costs = `Ideal: (m + p - 1) / (m · p) for m micro-batches on p devices that share nothing, of whose time the bubble is (p - 1) / (m + p - 1). Simulated devices: arithmetic, with the stages' measured shares of a step (${shares.map(percent).join(', ')}), of which forward is ${percent(forward)}; each task takes ${exact(perTask)} of a step more, a transfer ${exact(transfer)}.`
  const pipelined = times.map(({ split }) => split).filter((split) => typeof split === 'number')
  const best = pipelined.toSorted(
    (a, b) => endOf(simulate(flags, shares, a)) - endOf(simulate(flags, shares, b)),
  )[0]
  const spans = simulate(flags, shares, best)
  const schedule = `On simulated devices ${nameOf(best)} are the fastest. Forward ░, backward █:\n\n\`\`\`text\n${stripLines(spans, stages).join('\n')}\n\`\`\``
  return `${heading}\n\n${table}\n\n${costs}\n\n${schedule}\n\n\`\`\`text\n${barLines(barsOf(times)).join('\n')}\n\`\`\`\n`
}
