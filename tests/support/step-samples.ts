import type { SampleSpan, SpanKind, StepSample } from '../../src/trainer/watch/step-sample.ts'

/**
 * A step of a few buckets on each of `count` ranks, as they would report it: rank 1 computes a third slower, so the others wait for it.
 *
 * `skewMs` is how far each rank's clock is ahead of rank 0's; `beganMs` by rank 0's clock.
 */
export function makeSamples(
  count: number,
  step: number,
  beganMs: number,
  skewMs: readonly number[] = [],
): StepSample[] {
  const buckets = 3
  const computeMs = (rank: number) => (rank === 1 ? 20 : 15)
  const partMs = (rank: number, bucket: number) =>
    0.6 + 0.3 * computeMs(rank) + ((bucket + 1) * 0.7 * computeMs(rank)) / buckets
  const hostMs = (rank: number, bucket: number) => partMs(rank, bucket) + 0.8
  const ranks = Array.from({ length: count }, (_, rank) => rank)
  return ranks.map((rank): StepSample => {
    const spans: SampleSpan[] = []
    const add = (kind: SpanKind, part: number, fromMs: number, toMs: number) => {
      if (toMs > fromMs) spans.push({ kind, part, fromMs, toMs })
    }
    add('data', -1, 0, 0.6)
    const forwardMs = 0.6 + 0.3 * computeMs(rank)
    add('forward', -1, 0.6, forwardMs)
    let totalMs = 0.6 + computeMs(rank)
    if (count === 1) {
      add('backward', -1, forwardMs, totalMs)
      add('optimizer', -1, totalMs, totalMs + 2.2)
      totalMs += 2.2
    }
    for (let bucket = 0; count > 1 && bucket < buckets; bucket++) {
      add(
        'backward',
        bucket,
        bucket === 0 ? forwardMs : partMs(rank, bucket - 1),
        partMs(rank, bucket),
      )
      add('readback', bucket, partMs(rank, bucket), hostMs(rank, bucket))
      const allBegunMs = Math.max(...ranks.map((one) => hostMs(one, bucket))) + 0.3
      add('wait', bucket, hostMs(rank, bucket), allBegunMs)
      add('reduceScatter', bucket, allBegunMs, allBegunMs + 3.1)
      add('optimizer', bucket, allBegunMs + 3.1, allBegunMs + 3.6)
      add('allGather', bucket, allBegunMs + 3.9, allBegunMs + 6.4)
      totalMs = allBegunMs + 6.4
    }
    const skew = skewMs[rank] ?? 0
    return {
      step,
      beganMs: beganMs + skew,
      totalMs,
      spans: spans.sort((a, b) => a.fromMs - b.fromMs),
      readMs: beganMs + skew + totalMs + 0.1,
      link:
        count > 1
          ? {
              bytesSent: step * (1_085_000 + 4000 * rank),
              peakInFlightBytes: 60_000 * (2 + (rank % 3)),
              peakInFlightFrames: 2 + (rank % 3),
              windowBytes: 524_288,
            }
          : null,
      // Small arrays go straight to all.
      sentTo: ranks.map((to) =>
        to === rank ? null : step * ((to === (rank + 1) % count ? 1_085_000 : 9000) + 4000 * rank),
      ),
      memory: {
        plannedBytes: 1_240_000 / count + 380_000,
        deviceBytes: rank === 2 ? null : 6_900_000 + 10_000 * rank,
      },
    }
  })
}
