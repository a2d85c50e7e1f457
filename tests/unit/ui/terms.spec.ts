import { describe, expect, it } from 'vitest'
import { course } from '../../../demos/lessons/course.ts'
import { partsOf, termOf, terms } from '../../../src/ui/parts/terms.ts'

const markedIn = (text: string): string[] => partsOf(text).filter((_, at) => at % 2 === 1)

describe('terms', () => {
  it('finds a term when a word is capital, plural or hyphenated, and none for other words', () => {
    expect(['Gradients', 'held-out', 'losses', 'batches', 'micro-batches'].map(termOf)).toEqual([
      'gradient',
      'held out',
      'loss',
      'batch',
      'micro-batch',
    ])
    expect(termOf('constructor')).toBeNull()
  })

  it('explains every word when lessons mark it, and each once in a part', () => {
    for (const { number, idea, goals, answer, ...plain } of course) {
      for (const part of [idea, goals.map(({ words }) => words), answer]) {
        const marked = part.flatMap(markedIn)
        expect(
          marked.filter((word) => termOf(word) === null),
          `lesson ${number}`,
        ).toEqual([])
        expect(new Set(marked.map(termOf)).size).toBe(marked.length)
      }
      expect(idea.flatMap(markedIn).length).toBeGreaterThan(0)
      // What is shown as it stands.
      expect(JSON.stringify(plain).match(/\w*\[[a-z][^"\]]*\]/)).toBeNull()
    }
  })

  it('keeps to two sentences when it explains', () => {
    for (const [word, words] of Object.entries(terms))
      expect(words.split(/[.!?](?: |$)/).filter(Boolean).length, word).toBeLessThan(3)
  })
})
