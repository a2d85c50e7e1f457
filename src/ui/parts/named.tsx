/** A text in which each of these names has its colour beside it. */
export function Named({ text, hues }: { text: string; hues: ReadonlyMap<string, string> }) {
  if (hues.size === 0) return text
  // A long name may begin with a short one.
  const names = [...hues.keys()].sort((a, b) => b.length - a.length).map(escaped)
  const name = new RegExp(`(?<![\\p{L}\\p{N}])(${names.join('|')})(?![\\p{L}\\p{N}])`, 'u')
  return text.split(name).map((part, at) =>
    at % 2 === 0 ? (
      part
    ) : (
      <span key={at} class="hue-dot" style={{ '--hue': hues.get(part)! }}>
        {part}
      </span>
    ),
  )
}

const escaped = (text: string) => text.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&')
