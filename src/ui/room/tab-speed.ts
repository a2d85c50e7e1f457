import type { ComputeApi } from '../../worker/api.ts'

/**
 * Returns what measures the device of this tab: at one time once for all its ranks, and while no other tab of this browser does, as they may
 * share it.
 */
export function speedOfTab(): (own: ComputeApi) => Promise<number | null> {
  let underWay: Promise<number | null> | undefined
  return (own) => {
    underWay ??= navigator.locks
      .request('tabring-speed', () => own.speed())
      .finally(() => {
        underWay = undefined
      })
    return underWay
  }
}
