import type { ComponentChildren } from 'preact'
import { useLayoutEffect, useRef } from 'preact/hooks'
import { outlineOf } from './band.ts'
import type { Picture } from './pixels.ts'

interface FramedProps {
  /** Null: the place for it, with `instead`. */
  picture: Picture | null
  /** The shape of the frame. */
  shape: { readonly width: number; readonly height: number }
  title: string
  /** Colour of the rank that it is of, for `--hue`. */
  hue?: string | undefined
  /** Under it. */
  note?: ComponentChildren
  instead?: string
  /** Pixels from number `start` up to `end` are outlined, and the others dimmed. */
  band?: { readonly start: number; readonly end: number } | null
  /** Pixels that glow. */
  lit?: ArrayLike<number> | null
}

/** One picture in its frame; all frames of one shape are equally large. */
export function Framed({ picture, shape, title, hue, note, instead, band, lit }: FramedProps) {
  const canvas = useRef<HTMLCanvasElement>(null)
  useLayoutEffect(() => {
    if (!picture || !canvas.current) return
    const { width, height, rgb } = picture
    const image = new ImageData(width, height)
    const { data } = image
    for (let from = 0, to = 0; to < data.length; from += 3, to += 4) {
      data[to] = rgb[from]
      data[to + 1] = rgb[from + 1]
      data[to + 2] = rgb[from + 2]
      data[to + 3] = 255
    }
    canvas.current.getContext('2d')!.putImageData(image, 0, 0)
  }, [picture])
  const { width, height } = shape
  const outline = band ? outlineOf(band.start, band.end, width) : ''
  return (
    <figure class="framed">
      <div class="frame" style={{ '--shape': width / height }}>
        {picture ? (
          <canvas
            ref={canvas}
            // Resizing a canvas clears it; a new one draws again.
            key={`${picture.width} ${picture.height}`}
            width={picture.width}
            height={picture.height}
            role="img"
            aria-label={title}
          />
        ) : (
          <p class="quiet">{instead}</p>
        )}
        {picture && lit && <Lit pixels={lit} width={picture.width} height={picture.height} />}
        {band && (
          <svg viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" aria-hidden="true">
            <path class="others" fill-rule="evenodd" d={`M0 0H${width}V${height}H0Z${outline}`} />
            <path class="band-edge" d={outline} />
            <path class="band" d={outline} />
          </svg>
        )}
      </div>
      <figcaption>
        <b class={hue && 'hue-dot'} style={hue && { '--hue': hue }}>
          {title}
        </b>
        {note !== undefined && <span class="quiet">{note}</span>}
      </figcaption>
    </figure>
  )
}

interface LitProps {
  pixels: ArrayLike<number>
  width: number
  height: number
}

/** Those pixels of a picture, in one colour. */
function Lit({ pixels, width, height }: LitProps) {
  const canvas = useRef<HTMLCanvasElement>(null)
  useLayoutEffect(() => {
    const image = new ImageData(width, height)
    const colours = new Uint32Array(image.data.buffer)
    // Red, green, blue and opaque, the lowest byte first: the pink of what glows.
    for (let i = 0; i < pixels.length; i++) colours[pixels[i]] = 0xff_b0_30_ff
    canvas.current!.getContext('2d')!.putImageData(image, 0, 0)
  }, [pixels, width, height])
  return (
    <canvas
      ref={canvas}
      class="lit"
      role="img"
      aria-label="Pixels of your part"
      width={width}
      height={height}
    />
  )
}
