import * as v from 'valibot'
import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import type { StepProgram } from '../../graph/plan/step-program.ts'
import { gatherJson } from '../../peer/group/gather-json.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { adapterLine } from '../../util/adapter-words.ts'
import { clippedName } from '../../util/clipped.ts'
import { isSameList } from '../../util/is-same-list.ts'
import { isRecord } from '../../util/kind-of.ts'
import type { RunEvent, StepParts } from './run-events.ts'
import { deviceSchema } from './run-log.ts'
import {
  isPackedSample,
  type LinkCounters,
  packSample,
  type StepSample,
  unpackSample,
} from './step-sample.ts'
import { spansOf } from './step-spans.ts'
import type { StepTimeline } from './step-timeline.ts'

/** Steps are sampled about so often. units: ms. */
const everyMs = 1000
/** A run's first sample comes after so many steps, the second after so many more: how long a step takes is not known yet. */
const firstSteps = 3
const secondSteps = 8
/** More than are on the device at once where a rank is alone. */
const alonePause = 3
/** Steps may become slower all at once. */
const maxSteps = 2000

/** Report of a rank in one round. */
interface Report {
  /** As `packSample` gives it; null for a step that was done again after a device was lost. What is neither counts as null: it is only shown. */
  readonly sample: unknown
  /** How long a step took here, since the round before. */
  readonly stepMs: number
  /** What it computes on, in words. What is none counts as no news: it is only shown. */
  readonly device: unknown
}

const isReport = (received: unknown): received is Report =>
  isRecord(received) && Number.isFinite(received.stepMs)

export interface LiveSamplesOptions {
  readonly group: ProcessGroup
  readonly program: StepProgram
  readonly timeline: StepTimeline
  readonly onEvent: (event: RunEvent) => void
  /** Of the device that the program is on; null where that is not known. */
  readonly deviceBytes: () => number | null
  /** What this rank computes on now. */
  readonly adapter: () => AnyRuntime['facts']
  /** What each rank begins on, in words. */
  readonly devices: readonly string[]
  readonly firstStep: number
  /** units: ms. */
  readonly now?: () => number
}

/**
 * Samples a step of each rank about every second, and brings it to all ranks, with what the rank computes on.
 *
 * The ranks gather their samples (gatherJson) behind a step and go on at once; what came is taken at the next round, behind a step that all
 * agree on: what they report includes how long their steps take, so all reckon the same number of steps up to the one after it.
 * cost: one all-gather of some hundred bytes a rank and second, under way beside the steps.
 */
export class LiveSamples {
  readonly #options: LiveSamplesOptions
  readonly #now: () => number
  /** The step that is sampled next. */
  #next: number
  #every = secondSteps
  #roundMs: number
  #roundStep: number
  #underWay: Promise<Report[]> | undefined
  #sample: StepSample | undefined
  /** As all know. */
  #devices: readonly string[]

  constructor(options: LiveSamplesOptions) {
    this.#options = options
    this.#now = options.now ?? (() => performance.now())
    this.#next = options.firstStep + firstSteps
    this.#roundStep = options.firstStep
    this.#roundMs = this.#now()
    this.#devices = options.devices
  }

  isDue(step: number): boolean {
    return step === this.#next
  }

  /** Takes the times of a step that has ended, and when its program began; of one that is due they become its sample. */
  ended(step: number, times: StepParts, beganMs: number): void {
    const { group, timeline, program, deviceBytes } = this.#options
    const { watched } = timeline
    if (!this.isDue(step) || watched?.step !== step) return
    const fromMs = beganMs - times.data
    const sample: StepSample = {
      step,
      beganMs: performance.timeOrigin + fromMs,
      totalMs: times.total,
      spans: spansOf(watched, times, fromMs),
      readMs: performance.timeOrigin + this.#now(),
      link: this.#link(),
      sentTo: this.#sentTo(),
      memory: {
        plannedBytes: program.memory.deviceBytes + program.memory.ioBytes,
        deviceBytes: deviceBytes(),
      },
    }
    if (group.size > 1) {
      this.#sample = sample
      return
    }
    // Alone there is nobody to agree with, and the next steps have begun already.
    this.#schedule(step, [this.#stepMs(step)])
    this.#next = Math.max(this.#next, step + alonePause)
    this.#report([sample])
    this.#tellDevices(step, [this.#device])
  }

  /** Called behind each step, on all ranks the same; returns at once but for the rounds. errors: the group's. */
  async share(step: number): Promise<void> {
    const { group } = this.#options
    if (group.size === 1 || !this.isDue(step)) return
    const sample = this.#sample
    this.#sample = undefined
    const before = this.#underWay
    const stepMs = this.#stepMs(step)
    const packed = sample ? packSample(sample) : null
    const received: Report = { sample: packed, stepMs, device: this.#device }
    this.#underWay = gatherJson('the step samples', group, received, isReport)
    this.#underWay.catch(() => undefined)
    const known = before && (await before)
    this.#schedule(
      step,
      (known ?? []).map((one) => one.stepMs),
    )
    if (known) this.#tellAll(step, known)
  }

  /** Takes what is still under way. errors: the group's. */
  async finish(step: number): Promise<void> {
    const last = this.#underWay && (await this.#underWay)
    this.#underWay = undefined
    if (last) this.#tellAll(step, last)
  }

  #stepMs(step: number): number {
    const nowMs = this.#now()
    const ms = (nowMs - this.#roundMs) / Math.max(1, step - this.#roundStep)
    this.#roundMs = nowMs
    this.#roundStep = step
    return Math.round(ms * 100) / 100
  }

  /** The same on all ranks: by the slowest of them, as they reported in the round before. */
  #schedule(step: number, stepMs: readonly number[]): void {
    const slowest = Math.max(...stepMs)
    if (stepMs.length > 0 && slowest > 0)
      this.#every = Math.min(maxSteps, Math.max(1, Math.ceil(everyMs / slowest)))
    this.#next = step + this.#every
  }

  #tellAll(step: number, received: readonly Report[]): void {
    const { size } = this.#options.group
    this.#tellDevices(
      step,
      received.map(({ device }) => device),
    )
    const samples = received.flatMap(({ sample }) =>
      isPackedSample(sample, size) ? [unpackSample(sample)] : [],
    )
    if (samples.length === received.length) this.#report(samples)
  }

  #report(samples: readonly StepSample[]): void {
    const { rank } = this.#options.group
    this.#options.onEvent({ event: 'samples', rank, samples })
  }

  get #device(): string {
    return clippedName(adapterLine(this.#options.adapter()))
  }

  #tellDevices(step: number, received: readonly unknown[]): void {
    const devices = received.map((one, rank) =>
      v.is(deviceSchema, one) ? one : this.#devices[rank],
    )
    if (isSameList(devices, this.#devices)) return
    this.#devices = devices
    const { group, onEvent, adapter } = this.#options
    onEvent({ event: 'devices', step, devices, adapter: { ...adapter() }, rank: group.rank })
  }

  #sentTo(): (number | null)[] {
    const { group } = this.#options
    const { links } = group.stats()
    return Array.from(
      { length: group.size },
      (_, rank) => links.get(rank)?.payloadBytesSent ?? null,
    )
  }

  #link(): LinkCounters | null {
    const { group } = this.#options
    if (group.size === 1) return null
    const next = (group.rank + 1) % group.size
    const stats = group.stats().links.get(next)
    const flow = group.takeLinkPeaks(next)
    if (!stats || !flow) return null
    return { bytesSent: stats.payloadBytesSent, ...flow }
  }
}
