import type { Failure } from './coordination/messages.ts'

/** How a run ended. */
export interface Outcome {
  /** Null: every rank ended well. */
  failure: Failure | null
  restarts: number
  /** True if other launchers took part. */
  isShared: boolean
}

/** What a person reads of a run that failed: who was first, and its stack. */
export function failureText({ failure, restarts, isShared }: Outcome): string {
  if (!failure) return ''
  const { rank, host, text } = failure
  const again = restarts > 0 ? `after ${restarts} restart${restarts === 1 ? '' : 's'}` : ''
  const where = isShared ? ` on ${host}` : ''
  if (rank === null) return [again, where.trimStart(), text].filter(Boolean).join(': ')
  return `rank ${rank}${where} failed first${again && `, ${again}`}:\n${text}`
}
