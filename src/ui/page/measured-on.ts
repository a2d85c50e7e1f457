import { adapterWords } from '../../util/adapter-words.ts'
import type { AdapterFacts } from '../../worker/api.ts'

/** Where and when something was measured: adapter, browser with version, date. */
export function placeOf(facts: AdapterFacts, userAgent: string, date = new Date()): string {
  const { text, isSoftware } = adapterWords({ ...facts })
  const browser = /(Edg|Firefox|Chrome|Version)\/[\d.]+/.exec(userAgent)?.[0] ?? userAgent
  const system = /\(([^;)]+)/.exec(userAgent)?.[1] ?? ''
  return [
    facts.description && facts.description !== text ? `${text} (${facts.description})` : text,
    ...(isSoftware ? ['software adapter, which says nothing about a GPU'] : []),
    `${browser.replace('/', ' ')}${system && ` on ${system}`}`,
    date.toISOString().slice(0, 10),
  ].join(', ')
}
