import type { GpuCalls } from './compute/calls.ts'
import type { StepName } from './compute/task.ts'
import { type Place, type Row, rounded } from './row.ts'

/** Limits on our own step; the same on every adapter. */
const ownGoals = { encodeUsPerDispatch: 2, buffers: 0, bindGroups: 0 }
/** A step is one submit for each so much device time. units: us. */
const submitUs = 100_000
const dispatchGoals: Partial<Record<StepName, number>> = { mlp: 9 }
/** Dispatches of a GPT's layer, forward and backward. */
const layerGoal = 22

type Profile = Awaited<ReturnType<typeof window.bench.profile>>

/** Our own step's limits, as rows of the same form: "theirs" is the limit. */
export function ownRows(
  step: StepName,
  place: Place,
  detail: Record<string, unknown>,
  profile: Profile,
  dispatchesPerLayer: number | undefined,
): Row[] {
  const calls = detail.callsPerStep as GpuCalls
  const row = (name: string, ours: number, limit: number | undefined, unit: string): Row => ({
    row: `${step} step: ${name}`,
    ours: rounded(ours),
    peer: limit === undefined ? 'none' : 'limit',
    theirs: limit ?? null,
    ratio: limit ? rounded(ours / limit) : null,
    adapter: place.adapter,
    software: place.software,
    unit,
    better: 'lower',
    ...(limit === undefined ? {} : { goal: limit, isReached: ours <= limit }),
    browser: place.browser,
  })
  const kernels = profile.kernels.map(({ label, groups, us }) => ({
    label,
    groups,
    us: rounded(us),
  }))
  const deviceUs = kernels.reduce((sum, { us }) => sum + us, 0)
  const maxSubmits = Math.max(1, Math.ceil(deviceUs / submitUs))
  return [
    row('dispatches', calls.dispatches, dispatchGoals[step], ''),
    ...(dispatchesPerLayer === undefined
      ? []
      : [row('dispatches per layer', dispatchesPerLayer, layerGoal, '')]),
    row('submits', calls.submits, maxSubmits, ''),
    row('buffers created', calls.buffers, ownGoals.buffers, ''),
    row('bind groups created', calls.bindGroups, ownGoals.bindGroups, ''),
    row('bytes uploaded', calls.bytesUploaded, undefined, 'B'),
    {
      ...row(
        'encoding, per dispatch',
        profile.encodeUsPerDispatch,
        ownGoals.encodeUsPerDispatch,
        'µs',
      ),
      oursSpread: profile.encodeUsSpread.map(rounded),
    },
    {
      ...row('whole encoder, per dispatch', profile.wholeEncodeUsPerDispatch, undefined, 'µs'),
      oursSpread: profile.wholeEncodeUsSpread.map(rounded),
    },
    row('beginning the pass, once', profile.beginPassUs, undefined, 'µs'),
    row('encoding, per dispatch, caches warm', profile.warmEncodeUsPerDispatch, undefined, 'µs'),
    row('JavaScript until submitted', profile.stepJsUs, undefined, 'µs'),
    row('main thread, whole step', detail.mainThreadUsPerStep as number, undefined, 'µs'),
    {
      ...row('all kernels', deviceUs, undefined, 'µs'),
      kernels,
      chosen: profile.chosen,
    },
  ]
}
