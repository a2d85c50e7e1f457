import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { givenData } from '../../src/trainer/settings/config.ts'
import { keptInTab } from '../../src/ui/demo/kept.ts'
import type { ViewProps } from '../../src/ui/demo/view-props.ts'
import { messageOf } from '../../src/util/errors.ts'
import {
  bytesOfPoint,
  fieldsOfPoint,
  lacking,
  onGrid,
  pointsFromText,
  pointsToBytes,
  pointsToText,
  trainingPoints,
} from './given-points.ts'
import type { Marks } from './marks.ts'
import { meta } from './meta.ts'

/** A stroke puts points this far apart. */
const apart = 0.06
const max = meta.given!.maxBytes / bytesOfPoint

const kept = keptInTab<readonly number[]>([])
/** Those of the address are taken once. */
let takenText: string | null = null

/** The points that a person draws; `keep` gives them to the next run once there are enough. */
export function useDrawnPoints({
  give,
  givenInLink,
  refuseLink,
  canSet,
  config,
}: Pick<ViewProps, 'give' | 'givenInLink' | 'refuseLink' | 'canSet' | 'config'>) {
  const [points, setPoints] = useState(kept.value)
  const [brush, setBrush] = useState(0)
  const [failure, setFailure] = useState<string | null>(null)
  // Pointers move more often than the page is drawn.
  const newest = useRef(points)
  const change = (next: readonly number[]) => {
    kept.value = next
    newest.current = next
    setPoints(next)
    setFailure(null)
  }
  const keep = () => {
    const { current } = newest
    const count = current.length / fieldsOfPoint
    if (lacking(current) !== null) give(null)
    else give(pointsToBytes(current), pointsToText(current), trainingPoints(count))
  }
  const isAsked = canSet && config?.data === givenData
  useEffect(() => {
    if (!isAsked || givenInLink === null || takenText === givenInLink) return
    takenText = givenInLink
    try {
      change(pointsFromText(givenInLink))
      keep()
    } catch (error) {
      setFailure(messageOf(error))
      refuseLink()
    }
  }, [isAsked, givenInLink])
  const marks = useMemo((): Marks => {
    const count = points.length / fieldsOfPoint
    const at = (i: number) => points.slice(fieldsOfPoint * i, fieldsOfPoint * i + 2)
    return {
      train: {
        at: Array.from({ length: count }, (_, i) => at(i)).flat(),
        classes: Array.from({ length: count }, (_, i) => points[fieldsOfPoint * i + 2]),
      },
      test: null,
      own: null,
    }
  }, [points])
  return {
    marks,
    brush,
    setBrush,
    /** Why those of the address are not here. */
    failure,
    count: points.length / fieldsOfPoint,
    lacks: lacking(points),
    put(x: number, y: number, isFirst: boolean) {
      const { current } = newest
      const [lastX, lastY] = current.slice(-fieldsOfPoint)
      const isFar = isFirst || Math.hypot(x - lastX, y - lastY) >= apart
      if (isFar && current.length / fieldsOfPoint < max)
        change([...current, onGrid(x), onGrid(y), brush])
    },
    keep,
    undo() {
      change(newest.current.slice(0, -fieldsOfPoint))
      keep()
    },
    clear() {
      change([])
      keep()
    },
  }
}
