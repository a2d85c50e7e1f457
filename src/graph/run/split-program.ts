import { formatDevice, type PlacedDevice } from '../../util/device.ts'
import { GpuError } from '../../util/errors.ts'
import { log } from '../../util/log.ts'
import { oneAtATime } from '../../util/next-task.ts'
import { bytesOf } from '../../util/shape.ts'
import { type Phase, phases } from '../plan/phases.ts'
import type { Prepared, TracedStep } from '../plan/prepare.ts'
import {
  type CheckedInputs,
  checkInputs,
  checkRun,
  copyInputs,
  countUpdate,
  fillScalars,
  noTimes,
  noteTimes,
  type OnMark,
  onHost,
  type PreparedStep,
  type ProgramMemory,
  type RunInputs,
  type RunOutputs,
  type StepProgram,
  type StepTimes,
} from '../plan/step-program.ts'
import type { RankMessages } from '../trace/exchange.ts'
import { agreeOnNumbers, hasJointUpdate } from './agree-on-numbers.ts'
import { type RankEnd, Wires } from './crossings.ts'

/** A program that can be one of several parts of a step. */
export interface PartRunner
  extends Pick<StepProgram, 'memory' | 'dispatchCount' | 'destroy' | 'times' | 'onMark'> {
  readonly prepared: Prepared
  /**
   * Runs its part of the step.
   *
   * `scalars`: the step's, as every part has them. errors: the device's first error; those of the wires.
   */
  runPart(
    inputs: CheckedInputs,
    scalars: Float32Array<ArrayBuffer>,
    wires: Wires,
  ): Promise<RunOutputs>
}

/** A part of a step, ready on its device. */
export interface PartProgram {
  readonly device: PlacedDevice
  /** Bytes that it sends to other devices in each step. */
  readonly sentBytes: number
  readonly program: PartRunner
}

/**
 * A step over several devices: one program for each, joined by what they send each other.
 *
 * All parts begin at once. Each goes as far as what has arrived allows, so devices work at the same time where the step lets them.
 * Runs go one after the other. On several ranks each has a program with the parts of the devices that it has, and the outputs that they compute;
 * all run it as often. order: as on one device; the bits are those of the same kernels.
 */
export class SplitProgram implements StepProgram {
  readonly prepared: PreparedStep
  readonly parts: readonly PartProgram[]
  times: StepTimes = noTimes
  encodeMs = 0
  onMark: OnMark | undefined
  readonly #scalars: Float32Array<ArrayBuffer>
  readonly #messages: RankMessages | undefined
  readonly #remote: readonly RankEnd[]
  readonly #comparesSettings: boolean
  readonly #inTurn = oneAtATime()

  constructor(
    step: Pick<TracedStep, 'trace' | 'inputs'>,
    parts: readonly PartProgram[],
    messages?: RankMessages,
  ) {
    const all = parts.map(({ program }) => program.prepared)
    const { trace, inputs } = step
    this.#messages = messages
    this.#comparesSettings = hasJointUpdate(trace, messages)
    this.#remote = all.flatMap(({ crossings }) =>
      crossings.flatMap(({ kind, values }) =>
        values.flatMap(({ number, tag, peer: { rank }, label, task, value }) =>
          rank === undefined || rank === messages?.ranks[messages.rank]
            ? []
            : [
                {
                  kind,
                  number,
                  tag,
                  rank: messages!.ranks.indexOf(rank),
                  sizeBytes: bytesOf(value.type),
                  ...(label && { label, task }),
                },
              ],
        ),
      ),
    )
    const isRead = (name: string) => all.some((one) => Object.hasOwn(one.inputs, name))
    this.parts = parts
    this.prepared = {
      trace,
      // Of several ranks each needs the inputs that its devices read.
      inputs: messages
        ? Object.fromEntries(Object.entries(inputs).filter(([name]) => isRead(name)))
        : inputs,
      outputs: all.flatMap(({ outputs }) => outputs),
      nodes: all.flatMap(({ nodes }) => nodes),
      updates: all.flatMap(({ updates }) => updates),
      syncPoints: all.flatMap(({ syncPoints }) => syncPoints),
      chosen: Object.assign({}, ...all.map(({ chosen }) => chosen)),
    }
    this.#scalars = new Float32Array(Math.max(1, trace.scalars.size))
    log(3, 'plan', () =>
      parts
        .map(
          ({ device, sentBytes, program: { prepared, memory } }) =>
            `${formatDevice(device)}: ${prepared.nodes.length} ops, ${memory.deviceBytes} bytes of intermediates, ${sentBytes} bytes sent per step`,
        )
        .join('; '),
    )
  }

  /** The sums over all devices of this rank, and those of each. */
  get memory(): ProgramMemory {
    const all = this.parts.map(({ program }) => program.memory)
    const sum = (of: (memory: ProgramMemory) => number) =>
      all.reduce((total, memory) => total + of(memory), 0)
    return {
      peakBytes: sum(({ peakBytes }) => peakBytes),
      lowerBoundBytes: sum(({ lowerBoundBytes }) => lowerBoundBytes),
      deviceBytes: sum(({ deviceBytes }) => deviceBytes),
      ioBytes: sum(({ ioBytes }) => ioBytes),
      byDevice: this.parts.map(({ device, sentBytes, program: { memory } }) => ({
        device: formatDevice(device),
        peakBytes: memory.peakBytes,
        deviceBytes: memory.deviceBytes,
        ioBytes: memory.ioBytes,
        sentBytes,
      })),
    }
  }

  get dispatchCount(): number {
    return this.parts.reduce((sum, { program }) => sum + program.dispatchCount, 0)
  }

  async run(
    inputs: RunInputs,
    scalars: Readonly<Record<string, number>> = {},
  ): Promise<RunOutputs> {
    const settings = { ...scalars }
    const copies = copyInputs(inputs, Object.keys(this.prepared.inputs))
    return this.#inTurn(() => {
      const own = this.#run(copies, settings)
      countUpdate(this.prepared, own)
      return own
    })
  }

  async #run(given: RunInputs, scalars: Readonly<Record<string, number>>): Promise<RunOutputs> {
    const beganMs = performance.now()
    const inputs = checkInputs(this.prepared, given)
    fillScalars(this.prepared, scalars, onHost(inputs), this.#scalars)
    if (this.prepared.syncPoints.length > 0) this.prepared.trace.syncPoints!.beginStep()
    const agreed = this.#comparesSettings
      ? agreeOnNumbers(this.#messages!, this.prepared.trace.consistency, this.#scalars)
      : undefined
    const wires = new Wires(this.#remote, this.#messages, agreed)
    const { onMark } = this
    const isOnSeveral = this.parts.length > 1
    const running = this.parts.map(async ({ device, program }) => {
      const own = inputs.filter(([name]) => Object.hasOwn(program.prepared.inputs, name))
      program.onMark =
        onMark && isOnSeveral
          ? (name, atMs) => onMark(`${formatDevice(device)}, ${name}`, atMs)
          : onMark
      try {
        return await program.runPart(own, this.#scalars, wires)
      } catch (thrown) {
        const error = this.#namingDevice(thrown, device)
        wires.fail(error)
        throw error
      }
    })
    const ended = await Promise.allSettled(running)
    const failed = ended.find((one) => one.status === 'rejected')
    if (failed) throw failed.reason
    await agreed
    const outputs: RunOutputs = Object.assign({}, ...(await Promise.all(running)))
    const endedMs = performance.now()
    this.times = meanTimes(this.parts, endedMs - beganMs)
    noteTimes(outputs, { parts: this.times, beganMs, endedMs })
    return outputs
  }

  /** An error of a GPU with the device that it is of, and what that computes of a pipeline. */
  #namingDevice(thrown: unknown, device: PlacedDevice): unknown {
    if (!(thrown instanceof GpuError)) return thrown
    const stages = this.prepared.trace.stages?.stagesOn(device)
    const where = `${formatDevice(device)}${stages ? `, ${stages}` : ''}`
    const text = thrown.message.replace(/^device: /, '')
    return new GpuError(thrown.code, `device ${where}: ${text}`, { cause: thrown })
  }

  async shadow(): Promise<void> {
    // Steps over several devices exchange no gradients, so no other rank waits for this one's.
  }

  check(inputs: RunInputs, scalars: Readonly<Record<string, number>>): void {
    checkRun(this.prepared, inputs, scalars)
  }

  destroy(): void {
    for (const { program } of this.parts) program.destroy()
  }
}

/** The mean over the devices; what none of its phases takes, a device waits for others. */
function meanTimes(parts: readonly PartProgram[], ms: number): StepTimes {
  const mean = (part: Phase | 'wire') =>
    parts.reduce((sum, { program }) => sum + program.times[part], 0) / parts.length
  const [forward, backward, optimizer] = phases.map(mean)
  const wire = mean('wire')
  const wait = ms - forward - backward - optimizer - wire
  return { ...noTimes, forward, backward, optimizer, wire, wait }
}
