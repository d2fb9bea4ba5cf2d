import requests

URL = "http://localhost:8000/v1/completions"


class TravelDesk:
    def __init__(self, url=URL, model="travel"):
        self.url = url
        self.model = model
        self.session = requests.Session()

    def ask(self, question):
        body = {
            "model": self.model,
            "prompt": f"USER: {question}\nASSISTANT:",
            "max_tokens": 500,
            "temperature": 0.3,
        }
        reply = self.session.post(self.url, json=body, timeout=120)
        reply.raise_for_status()
        return reply.json()["choices"][0]["text"].strip()


if __name__ == "__main__":
    desk = TravelDesk()
    for q in ["Do I need a visa for a stop of six hours in Doha?",
              "Which rail pass covers Austria and Slovenia?"]:
        print(q, "->", desk.ask(q))
