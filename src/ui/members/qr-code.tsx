import { useEffect, useState } from 'preact/hooks'

/** Modules of white around a code, as its standard asks for. */
const margin = 4

/** A QR code of a link, dark on white in any theme, since cameras expect that; a screen reader reads the link itself. */
export function QrCode({ link }: { link: string }) {
  const [code, setCode] = useState<{ link: string; path: string; size: number } | null>(null)
  useEffect(() => {
    let isCurrent = true
    void drawCode(link).then((drawn) => isCurrent && setCode({ link, ...drawn }))
    return () => {
      isCurrent = false
    }
  }, [link])
  const shown = code?.link === link ? code : null
  const side = shown ? shown.size + 2 * margin : 1
  return (
    <svg
      class="qr"
      role="img"
      aria-label={`QR code of ${link}`}
      viewBox={`0 0 ${side} ${side}`}
      shape-rendering="crispEdges"
      data-is={shown ? 'drawn' : 'coming'}
    >
      <rect width={side} height={side} fill="#fff" />
      {shown && <path d={shown.path} fill="#000" />}
    </svg>
  )
}

/** The dark modules as one path, a rectangle for each stretch of a row. */
async function drawCode(link: string): Promise<{ path: string; size: number }> {
  const { encode } = await import('uqr')
  // Read off a screen, there is nothing to repair: larger modules serve better.
  const { data, size } = encode(link, { ecc: 'L', boostEcc: true, border: 0 })
  const runs = data.flatMap((row, y) => {
    const found: string[] = []
    for (let x = 0; x < size; x++) {
      if (!row[x]) continue
      let end = x
      while (row[end]) end++
      found.push(`M${margin + x} ${margin + y}h${end - x}v1h${x - end}z`)
      x = end
    }
    return found
  })
  return { path: runs.join(''), size }
}
