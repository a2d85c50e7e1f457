import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import { inPercent, named, shown } from './characters.ts'

export interface Maps {
  readonly layers: number
  readonly heads: number
  readonly characters: readonly string[]
  /** shape: [layers, heads, length, length] */
  readonly weights: Float32Array
}

/** A place in a map: row `query` takes from column `key`. */
interface Place {
  readonly map: number
  readonly query: number
  readonly key: number
}

const mapOf = ({ characters, weights }: Maps, map: number) => {
  const size = characters.length ** 2
  return weights.subarray(map * size, (map + 1) * size)
}

const nameOf = ({ heads }: Maps, map: number) =>
  `Layer ${Math.floor(map / heads) + 1}, head ${(map % heads) + 1}`

/** The key that a query takes most from. */
function strongest(maps: Maps, map: number, query: number): { key: number; weight: number } {
  const length = maps.characters.length
  const row = mapOf(maps, map).subarray(query * length, query * length + query + 1)
  const key = row.reduce((best, weight, at) => (weight > row[best] ? at : best), 0)
  return { key, weight: row[key] }
}

/** One map a head: rows are the prompt's characters, columns those that each of them takes from. */
export function AttentionMaps({ maps }: { maps: Maps }) {
  const { characters, layers, heads } = maps
  const last = characters.length - 1
  const [chosen, setChosen] = useState<Place | null>(null)
  const isThere = chosen !== null && chosen.query <= last && chosen.key <= chosen.query
  const place = isThere ? chosen : { map: 0, query: last, key: strongest(maps, 0, last).key }
  const { map, query, key } = place
  const row = mapOf(maps, map).subarray(query * characters.length, (query + 1) * characters.length)
  return (
    <div class="attention">
      <div class="maps" style={{ '--heads': heads }}>
        {Array.from({ length: layers * heads }, (_, own) => (
          <MapCanvas
            key={nameOf(maps, own)}
            maps={maps}
            map={own}
            place={own === map ? place : null}
            onPlace={setChosen}
          />
        ))}
      </div>
      <p class="mono strip" aria-hidden="true">
        {characters.map((character, at) => (
          <span
            key={at}
            data-is={at === query ? 'query' : at > query ? 'later' : at === key ? 'key' : 'earlier'}
            style={{ '--weight': at <= query ? row[at] : 0 }}
          >
            {shown(character)}
          </span>
        ))}
      </p>
      <p class="quiet">
        {nameOf(maps, map)}: character {query + 1}, {named(characters[query])}, attends{' '}
        {inPercent(row[key])} to character {key + 1}, {named(characters[key])}. Point at a map, or
        focus it and use the arrow keys.
      </p>
      <details>
        <summary>In words: what the last character attends to most</summary>
        <ul>
          {Array.from({ length: layers * heads }, (_, own) => {
            const best = strongest(maps, own, last)
            return (
              <li key={nameOf(maps, own)}>
                {nameOf(maps, own)}: {named(characters[best.key])}, character {best.key + 1} of{' '}
                {last + 1}, {inPercent(best.weight)}
              </li>
            )
          })}
        </ul>
      </details>
    </div>
  )
}

interface MapCanvasProps {
  maps: Maps
  map: number
  /** Where a person looks, if it is in this map. */
  place: Place | null
  onPlace: (place: Place) => void
}

/** By key: how far the place moves. */
const moves: Readonly<Record<string, readonly [query: number, key: number]>> = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
}

function MapCanvas({ maps, map, place, onPlace }: MapCanvasProps) {
  const canvas = useRef<HTMLCanvasElement>(null)
  const { length } = maps.characters
  useLayoutEffect(() => {
    const context = canvas.current?.getContext('2d')
    if (!canvas.current || !context) return
    const image = context.createImageData(length, length)
    // The accent's blue on whatever is behind: readable in light and dark.
    mapOf(maps, map).forEach((weight, i) => {
      image.data.set([58, 148, 214, Math.round(255 * Math.sqrt(weight))], 4 * i)
    })
    context.putImageData(image, 0, 0)
  }, [maps, map, length])
  const put = (query: number, key: number) => {
    const row = Math.max(0, Math.min(length - 1, query))
    onPlace({ map, query: row, key: Math.max(0, Math.min(row, key)) })
  }
  const best = strongest(maps, map, length - 1)
  return (
    <figure>
      <button
        type="button"
        class="map"
        aria-label={`${nameOf(maps, map)}: the last character attends most, ${inPercent(best.weight)}, to character ${best.key + 1}, ${named(maps.characters[best.key])}`}
        data-shown={place !== null}
        onFocus={() => place ?? put(length - 1, best.key)}
        onPointerMove={(event) => {
          const { left, top, width, height } = event.currentTarget.getBoundingClientRect()
          const query = Math.floor(((event.clientY - top) / height) * length)
          put(query, Math.floor(((event.clientX - left) / width) * length))
        }}
        onKeyDown={(event) => {
          const move = moves[event.key]
          if (!move || !place) return
          event.preventDefault()
          put(place.query + move[0], place.key + move[1])
        }}
      >
        <canvas ref={canvas} width={length} height={length} />
        {place && (
          <span
            class="place"
            style={{
              left: `${(100 * place.key) / length}%`,
              top: `${(100 * place.query) / length}%`,
              width: `${100 / length}%`,
              height: `${100 / length}%`,
            }}
          />
        )}
      </button>
      <figcaption class="quiet">
        {nameOf(maps, map).replace('Layer ', '').replace(', head ', '.')}
      </figcaption>
    </figure>
  )
}
