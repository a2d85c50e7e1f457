import type { JsonValue } from '../../peer/room/messages.ts'

/** An adapter as its owner describes it, in words; it came from another tab, so nothing about it is taken for granted. */
export interface AdapterWords {
  readonly text: string
  /** All that it says of itself, as of why it stands in for another. */
  readonly title: string
  readonly isSoftware: boolean
  readonly features: readonly string[]
}

export function adapterWords(adapter: JsonValue): AdapterWords {
  const facts =
    typeof adapter === 'object' && adapter !== null && !Array.isArray(adapter) ? adapter : {}
  const text = (key: string) => {
    const value = facts[key]
    return typeof value === 'string' ? value.trim() : ''
  }
  const name = [text('vendor'), text('architecture')].filter(Boolean).join(' · ')
  const description = text('description')
  const isCpu = text('architecture') === 'wasm'
  return {
    text: (!isCpu && name) || description.split(';')[0] || 'unnamed adapter',
    title: description,
    isSoftware: facts.isSoftware === true,
    features: [
      ...(facts.hasF16 === true ? ['f16'] : []),
      ...(facts.hasSubgroups === true ? ['subgroups'] : []),
    ],
  }
}
