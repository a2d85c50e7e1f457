import { isRecord } from './kind-of.ts'

/** An adapter as its owner describes it, in words; it came from another tab, so nothing about it is taken for granted. */
export interface AdapterWords {
  readonly text: string
  /** All that it says of itself. */
  readonly title: string
  /** Why it stands in for another, and what it lacks; empty where it does not. */
  readonly why: string
  readonly isSoftware: boolean
  readonly features: readonly string[]
}

/** Architectures of what computes on the CPU without an adapter; each says all in its description. */
const hosts = ['wasm', 'reference']

export function adapterWords(adapter: unknown): AdapterWords {
  const facts = isRecord(adapter) ? adapter : {}
  const text = (key: string) => {
    const value = facts[key]
    return typeof value === 'string' ? value.trim() : ''
  }
  const name = [text('vendor'), text('architecture')].filter(Boolean).join(' · ')
  const description = text('description')
  const [first, ...reasons] = description.split(';').map((part) => part.trim())
  const isHost = hosts.includes(text('architecture'))
  return {
    text: (!isHost && name) || first || 'unnamed adapter',
    title: description,
    why: isHost ? reasons.join('; ') : text('why'),
    isSoftware: facts.isSoftware === true,
    features: [
      ...(facts.hasF16 === true ? ['f16'] : []),
      ...(facts.hasSubgroups === true ? ['subgroups'] : []),
    ],
  }
}

/** One line: `CPU in WebAssembly, 2 threads (no GPU, only the adapter google swiftshader)`, or `google · swiftshader (software adapter)`. */
export function adapterLine(adapter: unknown): string {
  const { text, title, why, isSoftware } = adapterWords(adapter)
  const reason = why || (isSoftware && !title.startsWith(text) ? 'software adapter' : '')
  return reason ? `${text} (${reason})` : text
}
