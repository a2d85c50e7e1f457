import * as v from 'valibot'
import { load, type SavedState, save } from '../../data/saved-tree.ts'
import { CommittedStates } from '../../ddp/committed/committed-states.ts'
import { areLimits } from '../../ddp/hooks/left-out.ts'
import { DataError } from '../../util/errors.ts'
import { isRecord } from '../../util/kind-of.ts'
import { runLogIn } from '../watch/run-log.ts'
import type { KeptState } from './kept-state.ts'

const whole = v.pipe(v.number(), v.safeInteger(), v.minValue(0))
/** NaN and Infinity, too. */
const number = v.custom<number>((value) => typeof value === 'number', 'a number')
const progressSchema = v.object({ step: whole, loss: number, value: number, best: number })

/** A kept state as bytes, for a rank that lacks it. */
export const packState = (kept: KeptState): Uint8Array<ArrayBuffer> =>
  save(kept as unknown as SavedState)

/**
 * Unpacks what `packState` has packed, on a rank that has trained on no samples yet. What the parts of the run have of it, they check when they load it.
 *
 * errors: `data.malformed`.
 */
export function unpackState(bytes: Uint8Array<ArrayBuffer>): KeptState {
  const { progress, model, optimizer, scaler, limits, log } = load(bytes, 'the kept state')
  const known = v.safeParse(progressSchema, progress)
  const ownLog = runLogIn(log)
  const hasLimits = limits === undefined || areLimits(limits)
  const parts = scaler === undefined ? [model, optimizer] : [model, optimizer, scaler]
  if (!known.success || !parts.every(isRecord) || !hasLimits || (log !== undefined && !ownLog))
    throw new DataError(
      'data.malformed',
      'the kept state: expected the state of a run, as a rank sends it to one that lacks it, got another. Open the same version of the page on all ranks.',
    )
  const state = { model, optimizer, scaler, ...(limits && { limits }) } as unknown as Omit<
    KeptState,
    'progress' | 'log'
  >
  return { ...state, progress: { ...known.output, samples: 0 }, log: ownLog }
}

/** Ranks keep at the same steps, but one may be lost while another has just kept: then both still have the state before it. */
export const maxKept = 2

/** The states that a rank has kept. */
export class KeptStates extends CommittedStates<KeptState> {
  constructor() {
    const stepOf = ({ progress }: KeptState) => progress.step
    super({ label: 'the kept state', max: maxKept, stepOf, pack: packState, unpack: unpackState })
  }
}
