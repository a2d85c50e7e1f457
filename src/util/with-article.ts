/** A noun, or the name of a class, after "a" or "an". */
export const withArticle = (noun: string): string =>
  `${/^(?!uint)[aeiou]/i.test(noun) ? 'an' : 'a'} ${noun}`
