import { simulateSchedule, type TaskSpan } from '../../src/parallel/pipeline/simulate.ts'
import { markdownTable } from '../../src/util/markdown.ts'
import { deviation, mean, percentMore } from '../statistics.ts'
import { barLines, stripLines } from './plot.ts'
import { type Split, type SplitFacts, type SplitTask, type SplitTimes, sizeOf } from './task.ts'

/** Stated costs of the simulated devices, in shares of a step on one device. Stages take what their layers were measured to. */
const simulated = { forward: 1 / 3, perTask: 0.003, transfer: 0.003 }

export function nameOf(split: Split): string {
  if (split === 'one') return 'one device'
  if (split === 'layers') return 'layers on devices'
  return `micro-batches of ${sizeOf(split)}${typeof split === 'string' ? ', sends awaited' : ''}`
}

export const barsOf = (times: readonly SplitTimes[]) =>
  times.map(({ split, stepMs }) => ({
    name: nameOf(split),
    value: mean(stepMs),
    deviation: deviation(stepMs),
  }))

/** The traced step on simulated devices; times are shares of a step on one device. */
function simulate(
  { batch }: SplitTask,
  shares: readonly number[],
  { split, tasks }: SplitFacts,
): readonly TaskSpan[] {
  const { forward, perTask, transfer } = simulated
  const microBatches = batch / (sizeOf(split) ?? batch)
  return simulateSchedule(tasks, {
    forwardMs: (stage) => (forward * shares[stage]) / microBatches + perTask,
    backwardMs: (stage) => ((1 - forward) * shares[stage]) / microBatches + perTask,
    transferMs: transfer,
  })
}

const endOf = (spans: readonly TaskSpan[]): number => Math.max(...spans.map(({ endMs }) => endMs))

/** `where`: the day, and what it was measured on. */
export function formatReport(
  task: SplitTask & { readonly repeats: number },
  times: readonly SplitTimes[],
  shares: readonly number[],
  where: string,
): string {
  const { model, batch, stages, repeats } = task
  const [oneMs, layersMs] = times.map(({ stepMs }) => mean(stepMs))
  const mib = (bytes: readonly number[]) =>
    bytes.map((one) => (one / 2 ** 20).toFixed(2)).join(', ')
  const rows = times.map((one) => {
    const { split, stepMs, compileMs, peakBytes, sentBytes } = one
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
      split === 'one' ? '1.000' : endOf(simulate(task, shares, one)).toFixed(3),
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
  const heading = `${where}. ${model}, ${batch} samples, ${stages} logical devices of one adapter, ${repeats} steps each. They share its compute units, so the measured times show what splitting costs, and no speed-up.`
  const percent = (share: number) => `${Math.round(100 * share)} %`
  const exact = (share: number) => `${Number((100 * share).toPrecision(2))} %`
  const costs = `Ideal: (m + p - 1) / (m · p) for m micro-batches on p devices that share nothing, of whose time the bubble is (p - 1) / (m + p - 1). Simulated devices: arithmetic on the tasks of the traced step, with the stages' measured shares of a step (${shares.map(percent).join(', ')}), of which forward is ${percent(forward)}; each task takes ${exact(perTask)} of a step more, a transfer ${exact(transfer)}.`
  const simulations = times.flatMap((one) =>
    typeof one.split === 'number'
      ? [{ name: nameOf(one.split), spans: simulate(task, shares, one) }]
      : [],
  )
  const [best] = simulations.toSorted((a, b) => endOf(a.spans) - endOf(b.spans))
  const schedule = `On simulated devices ${best.name} are the fastest. Forward ░, backward █:\n\n\`\`\`text\n${stripLines(best.spans, stages).join('\n')}\n\`\`\``
  return `${heading}\n\n${table}\n\n${costs}\n\n${schedule}\n\n\`\`\`text\n${barLines(barsOf(times)).join('\n')}\n\`\`\`\n`
}
