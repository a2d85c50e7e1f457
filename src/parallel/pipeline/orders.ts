/**
 * In which order each device of a pipeline does its work. F3 and B3 are forward and backward of micro-batch 3; time goes right.
 *
 *     GPipe, 2 stages        stage 0   F0 F1 F2 F3       B0 B1 B2 B3        holds the activations of all micro-batches
 *                            stage 1      F0 F1 F2 F3 B0 B1 B2 B3
 *
 *     1F1B, 2 stages         stage 0   F0 F1    B0 F2 B1 F3 B2    B3        stage s of n holds at most n - s of them
 *                            stage 1      F0 B0 F1 B1 F2 B2 F3 B3
 *
 * With n stages and m micro-batches a device idles for (n - 1) / (m + n - 1) of the step. Interleaving v stages on each device divides
 * what it idles by v, for v times as many transfers.
 * GPipe: Huang et al. 2019. 1F1B: Narayanan et al. 2019 (PipeDream-Flush). Interleaved: Narayanan et al. 2021 (Megatron-LM).
 */
import type { StageTask } from '../../graph/trace/stage-marks.ts'

/** Where a device stands in its pipeline. */
export interface DevicePlace {
  /** Of `deviceCount` devices, in the order of their first stages. */
  readonly device: number
  readonly deviceCount: number
  readonly stageCount: number
  readonly microBatches: number
}

/** All tasks of a device, in order. */
export type TaskOrder = (place: DevicePlace) => StageTask[]

const forward = (stage: number, microBatch: number): StageTask => ({
  kind: 'forward',
  stage,
  microBatch,
})
const backward = (stage: number, microBatch: number): StageTask => ({
  kind: 'backward',
  stage,
  microBatch,
})
const upTo = (count: number) => Array.from({ length: count }, (_, i) => i)

/** The stages of a device: every `deviceCount`-th. */
const stagesOf = ({ device, deviceCount, stageCount }: DevicePlace): number[] =>
  upTo(stageCount).filter((stage) => stage % deviceCount === device)

/** All forwards, then all backwards. */
export const gpipeOrder: TaskOrder = (place) => {
  const stages = stagesOf(place)
  const batches = upTo(place.microBatches)
  return [
    ...stages.flatMap((stage) => batches.map((i) => forward(stage, i))),
    ...stages.reverse().flatMap((stage) => batches.map((i) => backward(stage, i))),
  ]
}

/** A few forwards, then forward and backward in turn, then the backwards that are left. With one stage on each device it is 1F1B. */
export const interleavedOrder: TaskOrder = (place) => {
  const { device, deviceCount, microBatches } = place
  const stages = stagesOf(place)
  // Devices take turns: `deviceCount` micro-batches through one stage, then as many through the next.
  const round = deviceCount * stages.length
  const total = microBatches * stages.length
  const at = (n: number, isBackward: boolean) => {
    const chunk = Math.floor(n / deviceCount) % stages.length
    const microBatch = Math.floor(n / round) * deviceCount + (n % deviceCount)
    return isBackward
      ? backward(stages[stages.length - 1 - chunk], microBatch)
      : forward(stages[chunk], microBatch)
  }
  const behind = deviceCount - 1 - device
  const ahead = stages.length === 1 ? behind : 2 * behind + (stages.length - 1) * deviceCount
  const warmup = Math.min(total, ahead)
  const order = upTo(warmup).map((n) => at(n, false))
  for (let n = warmup; n < total; n++) order.push(at(n, false), at(n - warmup, true))
  for (let n = total - warmup; n < total; n++) order.push(at(n, true))
  return order
}
