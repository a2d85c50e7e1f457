import { csvOf } from '../../src/ui/parts/csv.ts'
import { metaOf } from '../experiments.ts'
import type { StrategyLog } from './strategy-log.ts'

/** The points of all strategies as CSV, one line a step; the last column is empty but at steps behind which held-out samples were looked at. order: by strategy, then by step. */
export function curvesCsv(logs: readonly StrategyLog[]): string {
  const [{ config }] = logs
  const { name } = metaOf(config.demo).metric
  const { demo, model, data, seed } = config
  const header = [
    'experiment',
    'model',
    'data',
    'seed',
    'strategy',
    'ranks',
    'batch',
    'exchange',
    'step',
    'samples',
    'seconds',
    'loss',
  ]
  const rows = logs.flatMap(({ strategy, config: { batchSize }, losses, tests }) => {
    const tested = new Map(tests.steps.map((step, i) => [step, tests.values[i]]))
    return losses.steps.map((step, i) => [
      ...[demo, model, data, seed],
      ...[strategy.name, strategy.ranks, batchSize, strategy.isAlone ? 'no' : 'yes'],
      ...[step, losses.samples[i], losses.seconds[i], losses.values[i]],
      tested.get(step) ?? '',
    ])
  })
  return csvOf([...header, `held_out_${name.replaceAll(' ', '_')}`], rows)
}
