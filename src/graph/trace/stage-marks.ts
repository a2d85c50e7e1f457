import type { PlacedDevice } from '../../util/device.ts'
import type { GraphNode } from './value.ts'

/** One stage's work on one micro-batch. */
export interface StageTask {
  readonly kind: 'forward' | 'backward'
  readonly stage: number
  readonly microBatch: number
}

/** In which order each device does its tasks. */
export interface StageOrder {
  /** True if a device computes while what it sends is under way. */
  readonly overlapsSends: boolean
  /** Every task of the device's stages once; empty for a device without a stage. */
  tasksOn(device: PlacedDevice): readonly StageTask[]
}

interface Mark {
  readonly from: number
  readonly task: StageTask | undefined
}

/** The part of a trace that the marks read. */
interface Traced {
  readonly rules: readonly { readonly from: number; readonly to: number; readonly of: GraphNode }[]
  readonly backwards: readonly { readonly from: number; readonly to: number }[]
}

/**
 * Which nodes of a step belong to which stage and micro-batch of a pipeline.
 *
 * Forward is marked as it is traced; a node of backward belongs to the node whose gradient it computes.
 */
export class StageMarks {
  readonly order: StageOrder
  readonly #stageNames: readonly string[]
  readonly #marks: Mark[] = []

  /** `stageNames`: what errors call each stage. */
  constructor(order: StageOrder, stageNames: readonly string[] = []) {
    this.order = order
    this.#stageNames = stageNames
  }

  /** A task in words. */
  nameOf({ kind, stage, microBatch }: StageTask): string {
    return `${kind} of micro-batch ${microBatch} in ${this.#stageNames[stage] ?? `stage ${stage}`}`
  }

  /** The stages of a device in words; empty for a device without a stage. */
  stagesOn(device: PlacedDevice): string {
    const stages = new Set(this.order.tasksOn(device).map(({ stage }) => stage))
    return [...stages].map((stage) => this.#stageNames[stage] ?? `stage ${stage}`).join(', ')
  }

  /** Nodes with numbers from `id` on are forward of this stage and micro-batch. */
  begin(id: number, stage: number, microBatch: number): void {
    this.#marks.push({ from: id, task: { kind: 'forward', stage, microBatch } })
  }

  /** Nodes from `id` on belong to none, until the next `begin`. */
  end(id: number): void {
    this.#marks.push({ from: id, task: undefined })
  }

  /** The stages that a micro-batch went through, in order. */
  stagesOf(microBatch: number): number[] {
    return this.#marks.flatMap(({ task }) => (task?.microBatch === microBatch ? task.stage : []))
  }

  /** The task that a node is part of; undefined for what joins several, and for what is outside of the pipeline. */
  taskOf({ id }: GraphNode, { rules, backwards }: Traced): StageTask | undefined {
    const rule = lastFrom(rules, id)
    if (rule && id < rule.to) {
      const forward = lastFrom(this.#marks, rule.of.id)?.task
      return forward && { ...forward, kind: 'backward' }
    }
    const pass = lastFrom(backwards, id)
    return pass && id < pass.to ? undefined : lastFrom(this.#marks, id)?.task
  }
}

/** The last of `ranges`, which are in order, that begins at or before `id`. */
function lastFrom<T extends { readonly from: number }>(
  ranges: readonly T[],
  id: number,
): T | undefined {
  let [low, high] = [0, ranges.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if (ranges[middle].from <= id) low = middle + 1
    else high = middle
  }
  return ranges[low - 1]
}
