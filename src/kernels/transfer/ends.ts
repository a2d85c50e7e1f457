import type { PlacedDevice } from '../../util/device.ts'
import { defineOp, type Op } from '../op.ts'

export interface EndAttrs {
  /** Which of the step's transfers this is, in the order of this rank's trace. */
  readonly number: number
  /** Which of the transfers from one rank to the other this is: the same on both. */
  readonly tag: number
  /** The device at the other end. */
  readonly peer: PlacedDevice
  /** In a pipeline, for which micro-batch and stage: short, as messages are labelled, and the same at both ends. */
  readonly label?: string
  /** What errors call it instead, with the stage's layers. */
  readonly task?: string
}

const nothing = { name: 'naive', lower: () => ({ dispatches: [] }) } as const

/** The end of a transfer on the device that x leaves. Parts of a step have it in place of `transfer`; programs copy x out. */
export const send: Op<EndAttrs> = defineOp<EndAttrs>({
  name: 'send',
  takesHalf: true,
  infer: () => [],
  variants: [nothing],
  reference: () => [],
  tolerance: { absolute: 0, relative: 0, because: 'copies' },
  cases: [],
})

/** The end of a transfer on the device where y arrives; programs write y. */
export const receive: Op<EndAttrs> = defineOp<EndAttrs>({
  name: 'receive',
  infer: () => [],
  variants: [nothing],
  reference: () => [],
  tolerance: { absolute: 0, relative: 0, because: 'copies' },
  cases: [],
})

/** Returns whether an op is an end of a transfer. */
export const isEnd = (op: Op): boolean => op === (send as Op) || op === (receive as Op)
