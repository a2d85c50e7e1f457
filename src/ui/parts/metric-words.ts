import type { Metric } from '../../trainer/settings/demo-meta.ts'
import { formatLoss, formatMetric } from './format.ts'

/** What a demo measures, of which samples, in words: `test accuracy`, `test loss in bits per character`. */
export const metricName = ({ name, unit }: Metric, of: 'test' | 'training' | '' = 'test'): string =>
  `${of} ${name}${unit === 'share' || unit === '' ? '' : ` in ${unit}`}`.trim()

/** Returns whether the metric says something that the loss does not. */
export const isApart = ({ ofLoss }: Metric): boolean => ofLoss === undefined

/** The value alone, where its unit stands elsewhere; percent stay with it. */
export const metricValue = (metric: Metric, value: number): string =>
  metric.unit === 'share' ? formatMetric(metric, value) : formatLoss(value)

/** Which way is good, as a sign and in words. */
export const metricDirection = ({ better }: Metric): { sign: string; words: string } => ({
  sign: better === 'higher' ? '↑' : '↓',
  words: `${better} is better`,
})
