import type { BitProof } from '../../ddp/exact/exact-step.ts'
import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import type { LinkMeasurement } from '../../peer/group/measure-links.ts'
import type { Change } from '../settings/changes.ts'
import type { TrainConfig } from '../settings/config.ts'
import type { Metric } from '../settings/demo-meta.ts'
import type { StepParts, StepSample } from './step-sample.ts'

export type { StepParts } from './step-sample.ts'

export type Phase = 'load' | 'compile' | 'broadcast' | 'train' | 'evaluate'

/** Events of a run. */
export type RunEvent =
  | { event: 'phase'; phase: Phase; rank: number }
  | {
      /** So much of what a person gave has gone from its rank to the others. */
      event: 'given'
      doneBytes: number
      totalBytes: number
      rank: number
    }
  | {
      /** So much of the run's state has gone to ranks that lack it: emitted by these and by the one that gives it. */
      event: 'state'
      doneBytes: number
      totalBytes: number
      rank: number
    }
  | {
      /** A newcomer to an elastic run is not let in yet: emitted by the ranks and by the newcomer, each time that this is found. */
      event: 'waits'
      /** Its id as a member. */
      who: string
      /** Null: it is gone. */
      why: string | null
      rank: number
    }
  | {
      /** The connection of a rank of an elastic run holds up the steps: emitted by each rank that has found or heard this. */
      event: 'holdsUp'
      /** Its id as a member. Null: none holds up the steps any more. */
      who: string | null
      why: string | null
      rank: number
    }
  | {
      /** A member of an elastic run, or a newcomer, has sent what no build of this project sends: its link has ended. */
      event: 'broke'
      /** Its id as a member. */
      who: string
      /** Where the page knows it. */
      name?: string
      /** In words that follow its name. */
      what: string
      rank: number
    }
  | {
      /** The model is divided over the ranks: what each holds of it, by rank. */
      event: 'divided'
      held: readonly RankPart[]
      rank: number
    }
  | {
      /** After `step` ranks take other shares of each batch, by their speed: samples of a full one, by rank. */
      event: 'assigned'
      step: number
      samples: readonly number[]
      rank: number
    }
  | {
      event: 'step'
      /** Steps done, from 1 to totalSteps. */
      step: number
      totalSteps: number
      /** From 0. */
      epoch: number
      /** Mean loss over the global batch; with the strategy `alone`, over this rank's share of it. */
      loss: number
      /** The metric's mean over the same samples, by the name that the demo's meta gives it. */
      value: number
      rank: number
      /** Samples of this rank in this step. */
      samples: number
      /** Of all ranks. */
      globalSamples: number
      times: StepParts
      /** Payload bytes this rank has sent since the run began. */
      bytesSent: number
      /** With `exact`: of parameters, exponents and running statistics before the step, the same on all ranks. */
      stateHash?: string
    }
  | {
      event: 'samples'
      /** Work of each rank in one step, about every second; by rank. */
      samples: readonly StepSample[]
      rank: number
    }
  | {
      event: 'evaluation'
      step: number
      epoch: number
      /** The mean loss over held-out samples: of all ranks together; with the strategy `alone`, of this rank's replica. */
      loss: number
      /** The other figure measured on them, by its name in the demo's meta. */
      metric: string
      /** Its mean over the same samples. */
      value: number
      /** The same, where it is one. */
      accuracy?: number
      rank: number
    }
  | {
      /** All ranks have stopped after the same step, until one of them goes on. */
      event: 'paused'
      /** Steps done. */
      step: number
      /** The ranks that asked for it; none where they are gone. */
      by: readonly number[]
      rank: number
    }
  | { event: 'continued'; step: number; pausedMs: number; rank: number }
  /** From `step` on a setting has another value, on all ranks; `from`: the one before; `by`: the rank that asked, as far as it is known here. */
  | ({ event: 'changed'; by?: number | undefined; rank: number } & Change)
  /** A linked rank has been silent for some seconds, or is heard again. */
  | { event: 'silent'; who: number; isSilent: boolean; rank: number }
  | {
      /** In the step under way, or one bucket of it: gradients of these ranks did not count, since some were not finite or far too large. */
      event: 'leftOut'
      ranks: readonly number[]
      notFinite: readonly number[]
      /** Where the whole step was left out, on all ranks: which one, and what these ranks have found. */
      step?: number
      text?: string
      rank: number
    }
  | {
      /**
       * Emitted by every rank of an elastic run: after `step` one had lost its device and opened another; with `exact` also, ranks were found to
       * compute or to hold other bits than the run's.
       */
      event: 'unlike'
      step: number
      /** Those with other bits; none where another group found them. */
      ranks: readonly number[]
      text: string
      /** From then on the run is no longer the same bits as with other ranks. */
      isLasting: boolean
      rank: number
    }
  | {
      /**
       * By rank, what each computes on, and why: emitted by every rank when it begins to train with the others, and when that has changed, as by
       * a thread that ended.
       */
      event: 'devices'
      /** After which it was found to have changed; undefined where ranks begin. */
      step?: number
      devices: readonly string[]
      /** This rank's, for its page. */
      adapter: AnyRuntime['facts']
      rank: number
    }
  | {
      /** With `exact`: who trains from the step after `step` on, by rank. `proof`: by which bits ranks know those of the run. */
      event: 'group'
      step: number
      members: readonly GroupMember[]
      proof: BitProof
      rank: number
    }
  /** An elastic run has lost a rank, `who`, where that is known, and waits for its next group; `text` says why. */
  | { event: 'lost'; text: string; who: number | null; rank: number }
  /** An elastic run continues after that step in another group: ranks were lost, or have come. Emitted by every rank. */
  | { event: 'regrouped'; step: number; worldSize: number; rank: number }
  | {
      /** Who trains from now on in an elastic run: members' ids, by rank. */
      event: 'roster'
      ballot: number
      members: readonly string[]
      rank: number
    }
  | {
      /** Half of a roster of an elastic run is here: which half has asked the server first? `ComputeApi.firstHalf` answers. */
      event: 'half'
      ballot: number
      /** Its members that are not known to be dead, and those of them that would continue. */
      alive: readonly string[]
      lives: readonly string[]
      rank: number
    }
  | {
      /** Links that this rank needs in the roster with that ballot, and lacks: `ComputeApi.admit` or `notLinked` answers for each. */
      event: 'unlinked'
      ballot: number
      /** Of the roster, by rank: members of the run. */
      lives: readonly string[]
      /** By the ranks at the other end. */
      links: readonly { readonly peerRank: number; readonly initiator: boolean }[]
      rank: number
    }
  | {
      /** For a link that `unlinked` has asked for, from its other end: as `ComputeApi.signal` there. */
      event: 'signal'
      ballot: number
      from: number
      attempt: number
      data: string
      rank: number
    }
  | {
      /** It is not known for sure whether others train on, or steps are lost: a person decides. Emitted by the ranks that wait. */
      event: 'undecided'
      /** Members that have not answered or are dead, by id. Null: that is over. */
      missing: readonly string[] | null
      /** They had newer steps than anybody here. */
      hadMore: boolean
      /** The newest step whose state is here: later ones are lost without them. Null: nobody here has the run's state. */
      step: number | null
      rank: number
    }
  | {
      /** The run continues from a checkpoint; emitted by every rank. */
      event: 'resumed'
      /** Steps done. */
      step: number
      epoch: number
      /** The best evaluation before it; NaN without any. */
      best: number
      /** The same, where the metric is the accuracy. */
      bestAccuracy?: number
      rank: number
      /** How many ranks have a file of it; with `exact` and `latest`. */
      holders?: number
      /** 0 where the checkpoint is of the run's last step, and nothing is left to train. */
      stepsLeft: number
      /** Why its numbers are no longer bit for bit those of the saved run, as rank 0 finds; empty where they are, and from other ranks. */
      differences: string[]
    }
  | {
      /** A checkpoint is there. In a run with `saves` the rank that wrote it tells of it, else all do. */
      event: 'checkpoint'
      step: number
      name: string
      isBest: boolean
      /** A person asked for it. */
      isKept?: boolean
      rank: number
    }
  | {
      /** A checkpoint could not be written, on this rank or in the run's place. Later saves try again. */
      event: 'unsaved'
      step: number
      /** Of the error; empty for one of the browser. */
      code: string
      text: string
      rank: number
    }

/** A rank as the others know it: its tab's id in the room, and the name that the page shows. */
export interface RankName {
  readonly id: string
  readonly name: string
}

/** A rank of a group of an exact run. */
export interface GroupMember extends RankName {
  /** Of a full batch, those that it begins with. */
  readonly samples: number
  /** Its device, and why it was chosen. */
  readonly device?: string
  /** Where it is not the run's. */
  readonly proof?: BitProof
}

/** A rank's part of a divided model. */
export interface RankPart {
  /** Paths of its layers; undefined where it has a part of each. */
  readonly layers?: readonly string[]
  readonly parameterBytes: number
}

/** Facts that two runs must share to end with equal bits. */
export interface RunRecord {
  config: TrainConfig
  worldSize: number
  /** Rows of each rank's share of a full batch. */
  shares: readonly number[]
  /** The size at which buckets close, given or measured. */
  bucketCapMb: number
  /** In the order of their exchange. */
  buckets: { parameters: string[]; elements: number }[]
  /** Kernel variant by call in this rank's step. */
  variants: Record<string, string>
  /** Kernel variant by call as rank 0 measured it for the rows of all ranks; empty unless the run is tuned. */
  measured: Record<string, string>
  /** Measurement by all ranks of their links before the first step: `bucketCapMb` follows from it, unless it is given. */
  links: LinkMeasurement
  /** By rank. Where nothing is measured, the adapter decides the variants, and everywhere the last bits. */
  adapters: string[]
}

/** Something that happened in the step on record; `performance.now()` of the rank's worker. */
export interface TimelineEntry {
  name: string
  atMs: number
}

/** Result of a finished run on each rank, besides the trained parameters. */
export interface TrainerResult {
  steps: number
  /** Mean loss of the last step, as in its event. */
  loss: number
  /** The metric's mean over the last step's samples, as in its event; NaN where no step was left. */
  trainValue: number
  /** The metric of `trainValue`, `value` and `best`. */
  metric: Metric
  /** Of the last evaluation: means over all held-out samples. */
  heldOutLoss: number
  value: number
  /** Of all evaluations, those before a resumed checkpoint too. */
  best: number
  /** `value` and `best` where the metric is the accuracy; else NaN. */
  testAccuracy: number
  bestAccuracy: number
  /** Hash of the parameters as this rank's GPU holds them, as hexadecimal digits. */
  paramHash: string
  /** Samples that this rank trained on. */
  samples: number
  /** From the first step on: training, evaluation, and what a lost device costs, without pauses. */
  seconds: number
  /** One early step by parts: buckets on the host, frames, the end of backward. */
  timeline: TimelineEntry[]
  /** Devices that were lost on the way and replaced; the numbers are those of an undisturbed run. */
  lostDevices: number
  record: RunRecord
}
