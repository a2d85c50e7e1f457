import type { CollectiveSpan } from '../../peer/group/group.ts'
import { log } from '../../util/log.ts'
import { span } from '../../util/spans.ts'

/** A collective that has ended, for those who look on: a line at `debug=2`, a span at `trace`. */
export function tellCollective(of: CollectiveSpan): void {
  const { operation, sequence, bucket, payloadBytes, launchedMs, endedMs } = of
  const ms = endedMs - launchedMs
  log(2, 'collectives', () => {
    const rate = ms > 0 ? (payloadBytes / ms / 1e6).toFixed(3) : '-'
    return `${operation} #${sequence}, bucket ${bucket}: ${payloadBytes} bytes, ${ms.toFixed(2)} ms, ${rate} GB/s`
  })
  span('collectives', `${operation} ${bucket}`, launchedMs, endedMs, { sequence, payloadBytes })
}
