/** Numbers as people read them: few digits, always a unit, a dash for what is not known. */

const dash = '–'

const grouped = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })

/** `1,234`. */
export function formatCount(value: number): string {
  return Number.isFinite(value) ? grouped.format(value) : dash
}

/** A rate or size with three digits: `0.52`, `8.31`, `431`, `12,300`. */
export function formatNumber(value: number): string {
  if (!Number.isFinite(value)) return dash
  const size = Math.abs(value)
  if (size >= 1000) return grouped.format(Number(value.toPrecision(3)))
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2)
}

/** `0.2513`; small ones in powers of ten. */
export function formatLoss(value: number): string {
  if (!Number.isFinite(value)) return dash
  return value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential(2) : value.toFixed(4)
}

/** `97.45 %`. */
export function formatPercent(share: number, digits = 2): string {
  return Number.isFinite(share) ? `${(100 * share).toFixed(digits)} %` : dash
}

/** What a demo measures on held-out samples: `97.45 %`, `0.0213 squared error`. */
export function formatMetric({ unit }: { readonly unit: string }, value: number): string {
  if (unit === 'share') return formatPercent(value)
  return Number.isFinite(value) && unit !== '' ? `${formatLoss(value)} ${unit}` : formatLoss(value)
}

/** Powers of 1024, as transports count. units: bytes. */
export function formatBytes(bytes: number): string {
  if (!Number.isFinite(bytes)) return dash
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  let value = bytes
  let unit = 0
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1024
    unit++
  }
  return unit === 0 ? `${Math.round(value)} B` : `${formatNumber(value)} ${units[unit]}`
}

/** `0.42 ms`, `38.1 ms`. */
export function formatMs(ms: number): string {
  return Number.isFinite(ms) ? `${formatNumber(ms)} ms` : dash
}

/** `0.8 s`, `42 s`, `3 min 05 s`, `1 h 12 min`. */
export function formatSeconds(seconds: number): string {
  if (!Number.isFinite(seconds)) return dash
  if (seconds < 10) return `${seconds.toFixed(1)} s`
  const whole = Math.round(seconds)
  if (whole < 60) return `${whole} s`
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`
  const minutes = Math.round(whole / 60)
  return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`
}

/** `1 rank`, `3 ranks`. */
export function formatMany(count: number, singular: string): string {
  return `${formatCount(count)} ${singular}${count === 1 ? '' : 's'}`
}

const two = (value: number) => String(value).padStart(2, '0')

/** With a capital at its head. */
export const capitalized = (words: string): string =>
  `${words.slice(0, 1).toUpperCase()}${words.slice(1)}`
