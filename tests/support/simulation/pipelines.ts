import { type RankEnd, Wires } from '../../../src/graph/run/crossings.ts'
import type { RankMessages } from '../../../src/graph/trace/exchange.ts'
import type { StageTask } from '../../../src/graph/trace/stage-marks.ts'
import { gpipeOrder, interleavedOrder } from '../../../src/parallel/pipeline/orders.ts'
import type { CollectiveGroup } from '../../../src/peer/group/collective-group.ts'
import type { Draw } from './draw.ts'
import type { GroupShape, Operation } from './operations.ts'

type Contents = Uint8Array<ArrayBuffer>

/** Messages of other operations have smaller tags. */
const firstTag = 1000
const tagsOfEach = 1000

/** What a stage makes of a micro-batch, or of a gradient: bytes that depend on all stages before. */
const computed = ({ kind, stage }: StageTask, input: Contents): Contents =>
  input.map((byte) => (kind === 'forward' ? 3 * byte + stage : 5 * byte + stage + 1))

/** What a task of a pipeline of `stages` computes, by plain recursion. */
function expected(task: StageTask, stages: number, inputs: readonly Contents[]): Contents {
  const { kind, stage, microBatch } = task
  const from: StageTask | undefined =
    kind === 'forward'
      ? stage > 0
        ? { ...task, stage: stage - 1 }
        : undefined
      : stage < stages - 1
        ? { ...task, stage: stage + 1 }
        : { ...task, kind: 'forward' }
  return computed(task, from ? expected(from, stages, inputs) : inputs[microBatch]!)
}

/** A step of a pipeline: real orders and wires, between the ranks of a group as its stages, on bytes instead of tensors. */
export function pipelineOperation(
  draw: Draw,
  { index, size }: GroupShape,
  serial: number,
  maxElements: number,
): Operation {
  const microBatches = draw.whole(1, 6)
  const length = draw.whole(1, Math.ceil((4 * maxElements) / (size * microBatches)))
  const order = draw.pick([gpipeOrder, interleavedOrder])
  const seed = draw.whole(0, 255)
  const inputsOf = (count: number) =>
    Array.from({ length: microBatches }, (_, at) =>
      Uint8Array.from({ length: count }, (_, i) => seed + 7 * at + i),
    )
  /** Of what leaves a stage: its number in the step. */
  const numberOf = ({ kind, stage, microBatch }: StageTask) =>
    (kind === 'forward' ? 0 : 500) + stage * microBatches + microBatch
  const receiverOf = ({ kind, stage }: StageTask): number | undefined => {
    const to = kind === 'forward' ? stage + 1 : stage - 1
    return to >= 0 && to < size ? to : undefined
  }
  const tasksOf = (device: number) =>
    order({ device, deviceCount: size, stageCount: size, microBatches })
  const endOf = (task: StageTask, kind: RankEnd['kind'], rank: number, sizeBytes: number) => {
    const number = numberOf(task)
    return { kind, number, tag: firstTag + serial * tagsOfEach + number, rank, sizeBytes }
  }

  async function run(rank: number, group: CollectiveGroup, count: number): Promise<Contents[]> {
    const own = tasksOf(rank)
    const sources = [rank - 1, rank + 1].flatMap((from) =>
      from < 0 || from >= size ? [] : tasksOf(from).filter((task) => receiverOf(task) === rank),
    )
    const ends: RankEnd[] = [
      ...own.flatMap((task) => {
        const to = receiverOf(task)
        return to === undefined ? [] : [endOf(task, 'send', to, count)]
      }),
      ...sources.map((task) => endOf(task, 'receive', task.stage, count)),
    ]
    const wires = new Wires(ends, group as unknown as RankMessages)
    const inputs = inputsOf(count)
    const made = new Map<string, Contents>()
    const results: Contents[] = []
    const sending: Promise<void>[] = []
    for (const task of own) {
      const { kind, stage, microBatch } = task
      const source = sources.find((one) => one.kind === kind && one.microBatch === microBatch)
      const input = source
        ? await wires.receive(numberOf(source))
        : kind === 'forward'
          ? inputs[microBatch]!
          : made.get(`forward ${microBatch}`)!
      const result = computed(task, input)
      made.set(`${kind} ${microBatch}`, result)
      results.push(result)
      if (receiverOf({ kind, stage, microBatch }) === undefined) continue
      const sent = wires.send(numberOf(task), result)
      sent.catch((error) => wires.fail(error))
      sending.push(sent)
    }
    await Promise.all(sending)
    return results
  }

  return {
    group: index,
    isBarrier: false,
    canBeOdd: true,
    name: `pipeline of ${microBatches} micro-batches x${length} of group ${index} (${size} stages) by ${order === gpipeOrder ? 'GPipe' : '1F1B'}`,
    ranks: Array.from({ length: size }, (_, rank) => rank),
    lane: `pipeline ${serial}`,
    start(rank, group, _onmet, isOdd) {
      let results: Contents[] = []
      const promise = run(rank, group, length + Number(isOdd)).then((own) => {
        results = own
      })
      const isRight = () => {
        const inputs = inputsOf(length)
        return tasksOf(rank).every(
          (task, at) => Buffer.compare(results[at]!, expected(task, size, inputs)) === 0,
        )
      }
      return { promise, isRight }
    },
  }
}
