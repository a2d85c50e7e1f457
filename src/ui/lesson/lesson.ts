/**
 * A lesson of ten minutes on one of the site's pages: an idea, a prediction to make first, and goals that the page sees
 * reached. `Facts` is what that page knows.
 */
export interface Lesson<Facts> {
  readonly number: number
  readonly title: string
  /** The one thing to find out, in a sentence. */
  readonly about: string
  /** Its page with the settings, from the site's root, without `lesson`. */
  readonly address: string
  /** Paragraphs to read before the prediction. Here, in goals and in answers, `[words]` in brackets explain themselves. */
  readonly idea: readonly string[]
  readonly prediction: {
    readonly question: string
    readonly choices: readonly string[]
    /** Index of the choice that comes true. */
    readonly right: number
  }
  readonly goals: readonly Goal<Facts>[]
  /** Paragraphs on what was to be seen, and why. */
  readonly answer: readonly string[]
  readonly forTeacher: {
    readonly prepare: string
    /** A wrong idea that pupils often have. */
    readonly mistake: string
    readonly questions: readonly (readonly [question: string, answer: string])[]
  }
}

export interface Goal<Facts> {
  /** A sentence that asks for it. */
  readonly words: string
  readonly isReached: (facts: Facts) => boolean
  /** Settings for a button beside the words. */
  readonly settings?: Readonly<Record<string, string>>
}

/** In an address: the number of the lesson that its page is opened for. */
export const lessonParameter = 'lesson'

/** Returns whether an address opens its page for this lesson. `search`: its query. */
export const isLesson = ({ number }: Lesson<never>, search: string): boolean =>
  new URLSearchParams(search).get(lessonParameter) === String(number)

/** Number of lessons of the course. */
export const lessonCount = 5

/** The address that opens a lesson's page, from the site's root. */
export const lessonAddress = ({ number, address }: Lesson<never>): string => {
  const [path, query = ''] = address.split('?')
  const parameters = new URLSearchParams(query)
  parameters.set(lessonParameter, String(number))
  return `${path}?${parameters}`
}
