import type { Stage, TogetherPass } from '../together-pass.ts'
import type { WasmBuffer } from './buffer.ts'
import type { WasmBindGroup, WasmPipeline } from './pipeline.ts'
import type { Command } from './queue.ts'
import type { StageTask, Threads } from './threads.ts'

/** A command that an encoder records. */
export interface RecordedCommand extends Command {
  readonly label: string
  /** Why a queue must refuse it; undefined where it need not. */
  readonly problem: string | undefined
}

type WasmStage = Stage<WasmPipeline, WasmBindGroup>

class Dispatch implements RecordedCommand {
  readonly #stages: readonly WasmStage[]
  readonly #runs: number
  readonly #threads: Threads
  readonly #tasks: readonly StageTask[]
  #next = 0

  constructor(stages: readonly WasmStage[], runs: number, threads: Threads) {
    this.#stages = stages
    this.#runs = runs
    this.#threads = threads
    this.#tasks = stages.map(({ pipeline, group, groups, groupsAPiece, strides }) => ({
      pipeline,
      groups,
      groupsAPiece,
      addresses: group.addresses(pipeline.bindings),
      strides: pipeline.bindings.map((binding) => strides[binding] ?? 0),
    }))
  }

  get label(): string {
    return this.#stages[0].pipeline.label
  }

  get problem(): string | undefined {
    for (const { group } of this.#stages)
      for (const { address, label, problem } of group.buffers) {
        if (problem) return problem
        if (address === undefined) return `buffer "${label}" can be mapped, but not bound`
      }
    return undefined
  }

  run(): boolean {
    const [{ pipeline, groups, groupsAPiece }] = this.#stages
    const [x, y, z] = groups
    const total = Math.ceil((x * y * z) / groupsAPiece)
    if (this.#threads.isOpen) return this.#threads.finish() && this.#next >= total
    const first = this.#next
    const part = Math.ceil(pipeline.part(this.#threads.count) / (groupsAPiece * this.#runs))
    const count = Math.min(part, total - first)
    this.#next += count
    if (count === 0) return true
    return this.#threads.run(this.#tasks, first, count, this.#runs) && this.#next >= total
  }
}

/** Fills with zeros where it has no source. */
class Copy implements RecordedCommand {
  readonly label = 'copy'
  readonly #source: WasmBuffer | undefined
  readonly #from: number
  readonly #target: WasmBuffer
  readonly #to: number
  readonly #size: number

  constructor(
    source: WasmBuffer | undefined,
    from: number,
    target: WasmBuffer,
    to: number,
    size: number,
  ) {
    this.#source = source
    this.#from = from
    this.#target = target
    this.#to = to
    this.#size = size
  }

  get problem(): string | undefined {
    const source = this.#source
    const ends = source
      ? [source.size - this.#from, this.#target.size - this.#to]
      : [this.#target.size - this.#to]
    if (Math.min(...ends) < this.#size) return `${this.#size} bytes pass the end of a buffer`
    return source?.problem ?? this.#target.problem
  }

  run(): boolean {
    const target = this.#target.bytes(this.#to, this.#size)
    if (this.#source) target.set(this.#source.bytes(this.#from, this.#size))
    else target.fill(0)
    return true
  }
}

/** Times in nanoseconds, by query. */
export class WasmQuerySet {
  readonly count: number
  readonly times: BigUint64Array<ArrayBuffer>

  constructor(count: number) {
    this.count = count
    this.times = new BigUint64Array(count)
  }

  destroy(): void {
    // It is collected like any array.
  }
}

/** Does something at once. */
class Note implements RecordedCommand {
  readonly label: string
  readonly #act: () => void
  readonly #target: WasmBuffer | undefined

  constructor(label: string, act: () => void, target?: WasmBuffer) {
    this.label = label
    this.#act = act
    this.#target = target
  }

  get problem(): string | undefined {
    return this.#target?.problem
  }

  run(): boolean {
    this.#act()
    return true
  }
}

interface TimestampWrites {
  readonly querySet: WasmQuerySet
  readonly beginningOfPassWriteIndex?: number
  readonly endOfPassWriteIndex?: number
}

const timestamp = ({ times }: WasmQuerySet, index: number) =>
  new Note('timestamp', () => {
    times[index] = BigInt(Math.round(performance.now() * 1e6))
  })

export class WasmCommandEncoder {
  readonly #commands: RecordedCommand[] = []
  readonly #threads: Threads

  constructor(threads: Threads) {
    this.#threads = threads
  }

  beginComputePass({
    timestampWrites,
  }: {
    timestampWrites?: TimestampWrites
  } = {}): WasmComputePass {
    const begin = timestampWrites?.beginningOfPassWriteIndex
    const end = timestampWrites?.endOfPassWriteIndex
    if (begin !== undefined) this.#commands.push(timestamp(timestampWrites!.querySet, begin))
    return new WasmComputePass(this.#commands, this.#threads, () => {
      if (end !== undefined) this.#commands.push(timestamp(timestampWrites!.querySet, end))
    })
  }

  copyBufferToBuffer(
    source: WasmBuffer,
    from: number,
    target: WasmBuffer,
    to: number,
    size: number,
  ): void {
    this.#commands.push(new Copy(source, from, target, to, size))
  }

  clearBuffer(target: WasmBuffer, offset = 0, size = target.size - offset): void {
    this.#commands.push(new Copy(undefined, 0, target, offset, size))
  }

  resolveQuerySet(
    { times }: WasmQuerySet,
    first: number,
    count: number,
    target: WasmBuffer,
    offset: number,
  ): void {
    const resolve = () => {
      const { buffer } = times.subarray(first, first + count)
      target.bytes(offset, count * 8).set(new Uint8Array(buffer, first * 8, count * 8))
    }
    this.#commands.push(new Note('times', resolve, target))
  }

  finish(): readonly RecordedCommand[] {
    return this.#commands
  }
}

class WasmComputePass implements TogetherPass<WasmPipeline, WasmBindGroup> {
  readonly #commands: RecordedCommand[]
  readonly #threads: Threads
  readonly end: () => void
  #pipeline!: WasmPipeline
  #group!: WasmBindGroup

  constructor(commands: RecordedCommand[], threads: Threads, end: () => void) {
    this.#commands = commands
    this.#threads = threads
    this.end = end
  }

  setPipeline(pipeline: WasmPipeline): void {
    this.#pipeline = pipeline
  }

  setBindGroup(_index: number, group: WasmBindGroup): void {
    this.#group = group
  }

  dispatchWorkgroups(x: number, y = 1, z = 1): void {
    const stage = { pipeline: this.#pipeline, group: this.#group, groups: [x, y, z] } as const
    this.dispatchTogether([{ ...stage, groupsAPiece: 1, strides: [] }], 1)
  }

  dispatchTogether(stages: readonly WasmStage[], runs: number): void {
    this.#commands.push(new Dispatch(stages, runs, this.#threads))
  }
}
