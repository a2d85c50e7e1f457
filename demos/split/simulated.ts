import { gpipeOrder, interleavedOrder } from '../../src/parallel/pipeline/orders.ts'
import { bubbleOf, simulateSchedule, type TaskSpan } from '../../src/parallel/pipeline/simulate.ts'
import { batch, type Settings } from './settings.ts'

/** Stated costs of the simulated devices, of the whole network and a whole batch. units: ms. */
export const costs = { forward: 240, backward: 480, perTask: 0.5, transfer: 1 } as const

/** A step on simulated devices. units: ms. */
export interface Simulated {
  readonly spans: readonly TaskSpan[]
  readonly endMs: number
  readonly bubble: number
}

/** What one device takes for the whole step. units: ms. */
export const oneDeviceMs = costs.forward + costs.backward + 2 * costs.perTask

/** The schedule of the settings on devices of the stated costs; `microBatches` 1: model parallel. */
export function simulated(
  { devices, schedule }: Pick<Settings, 'devices' | 'schedule'>,
  microBatches: number,
): Simulated {
  const order = schedule === 'gpipe' ? gpipeOrder : interleavedOrder
  const share = 1 / (devices * microBatches)
  const spans = simulateSchedule(
    Array.from({ length: devices }, (_, device) =>
      order({ device, deviceCount: devices, stageCount: devices, microBatches }),
    ),
    {
      forwardMs: () => costs.forward * share + costs.perTask,
      backwardMs: () => costs.backward * share + costs.perTask,
      transferMs: costs.transfer,
    },
  )
  return { spans, endMs: Math.max(...spans.map(({ endMs }) => endMs)), bubble: bubbleOf(spans) }
}

export const microBatchesOf = ({ split }: Pick<Settings, 'split'>): number => batch / split

/** A micro-batch on its way from one stage to the next, or its gradient on the way back. */
export interface Transfer {
  readonly microBatch: number
  readonly kind: TaskSpan['kind']
  readonly from: number
  readonly to: number
  /** range: 0 to 1. */
  readonly share: number
}

/** What each stage does at a moment, and what it holds. */
export interface Moment {
  readonly running: readonly (TaskSpan | undefined)[]
  /** By stage: micro-batches whose activations wait for their backward. */
  readonly held: readonly (readonly number[])[]
  readonly transfers: readonly Transfer[]
}

export function momentOf({ spans }: Simulated, stages: number, ms: number): Moment {
  const of = (stage: number) => spans.filter((span) => span.stage === stage)
  const all = Array.from({ length: stages }, (_, stage) => stage)
  const backwardEnd = (stage: number, microBatch: number) =>
    of(stage).find((span) => span.kind === 'backward' && span.microBatch === microBatch)!.endMs
  return {
    running: all.map((stage) =>
      of(stage).find(({ startMs, endMs }) => startMs <= ms && ms < endMs),
    ),
    held: all.map((stage) =>
      of(stage)
        .filter(({ kind, endMs }) => kind === 'forward' && endMs <= ms)
        .map(({ microBatch }) => microBatch)
        .filter((microBatch) => ms < backwardEnd(stage, microBatch)),
    ),
    transfers: spans.flatMap(({ kind, stage, microBatch, endMs }): Transfer[] => {
      const to = kind === 'forward' ? stage + 1 : stage - 1
      const share = (ms - endMs) / costs.transfer
      if (to < 0 || to >= stages || share < 0 || share >= 1) return []
      return [{ microBatch, kind, from: stage, to, share }]
    }),
  }
}
